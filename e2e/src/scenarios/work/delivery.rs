//! The life of a work's objects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use writ_api::work::{AppliedManifestWork, MANIFEST_WORK_FINALIZER};

use super::support::{
    agent, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
    spoke, works,
};
use crate::Fleet;

/// Delivered with an owner, reported, changed, pruned, removed.
pub async fn life(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let (a, b) = (config_map("shop", "a", "1"), config_map("shop", "b", "1"));
    create(
        &works,
        "web",
        // The namespace comes last, and is there first.
        json!({"workload": {"manifests": [a, b, namespace]}}),
    )
    .await?;
    let work = condition(&works, "web", "Available", "True").await?;
    ensure!(work.finalizers().contains(&MANIFEST_WORK_FINALIZER.to_owned()));
    condition(&works, "web", "Applied", "True").await?;
    ensure!(manifest_condition(&work, 1, "Applied")?.1 == "AppliedManifestComplete");
    let maps = config_maps(&client, "shop");
    let map = holds(&maps, "a", "1").await?;

    let anchors: Api<AppliedManifestWork> = Api::all(client.clone());
    let found = anchors.list(&ListParams::default()).await?.items;
    ensure!(found.len() == 1, "one AppliedManifestWork, not {}", found.len());
    let anchor = found.first().context("an AppliedManifestWork")?;
    ensure!(anchor.name_any().ends_with("-web"));
    let recorded = anchor.status.clone().unwrap_or_default().applied_resources;
    ensure!(
        recorded.len() == 3,
        "three objects are recorded, not {recorded:?}"
    );
    let owner = map.owner_references().first().map(|owner| owner.uid.clone());
    ensure!(owner == anchor.uid(), "the object names its AppliedManifestWork");

    let (a, namespace) = (
        config_map("shop", "a", "2"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
    );
    change(
        &works,
        "web",
        json!({"spec": {"workload": {"manifests": [a, namespace]}}}),
    )
    .await?;
    holds(&maps, "a", "2").await?;
    gone(&maps, "b").await?;
    condition(&works, "web", "Applied", "True").await?;

    delete(&works, "web").await?;
    gone(&maps, "a").await?;
    ensure!(anchors.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

/// A change and a deletion by somebody else are undone; what others add stays.
pub async fn drift(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let manifests: Vec<_> = (0..3)
        .map(|n| config_map("default", &format!("m{n}"), "1"))
        .collect();
    create(&works, "web", json!({"workload": {"manifests": manifests}})).await?;
    condition(&works, "web", "Available", "True").await?;
    let maps = config_maps(&client, "default");

    let add = json!({"data": {"theirs": "stays"}});
    maps.patch("m0", &PatchParams::default(), &Patch::Merge(&add))
        .await?;
    let mut slowest = Duration::ZERO;
    for round in 0..5 {
        let edit = json!({"data": {"key": format!("drift {round}")}});
        maps.patch("m0", &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        let started = Instant::now();
        holds(&maps, "m0", "1").await?;
        maps.delete("m1", &DeleteParams::default()).await?;
        holds(&maps, "m1", "1").await?;
        slowest = slowest.max(started.elapsed());
    }
    let data = maps.get("m0").await?.data.unwrap_or_default();
    ensure!(
        data.get("theirs").map(String::as_str) == Some("stays"),
        "{data:?}"
    );
    ensure!(slowest < Duration::from_secs(1), "repaired after {slowest:?}");
    Ok(())
}

/// A missing namespace and a missing kind are conditions, and heal when they appear.
pub async fn appears(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let toy = json!({"apiVersion": "toys.example.com/v1", "kind": "Toy", "metadata": {"name": "t", "namespace": "default"}});
    create(
        &works,
        "web",
        json!({"workload": {"manifests": [config_map("later", "a", "1"), toy, config_map("default", "now", "1")]}}),
    )
    .await?;
    holds(&config_maps(&client, "default"), "now", "1").await?;
    let work = condition(&works, "web", "Applied", "False").await?;
    ensure!(manifest_condition(&work, 2, "Applied")?.0 == "True");
    ensure!(manifest_condition(&work, 1, "Applied")?.2.contains("Toy"));
    let started = Instant::now();
    fleet.cluster(1)?.namespace("later").await?;
    holds(&config_maps(&client, "later"), "a", "1").await?;
    ensure!(
        started.elapsed() < Duration::from_secs(2),
        "healed after {:?}",
        started.elapsed()
    );
    crate::yaml::apply(&client, TOYS).await?;
    condition(&works, "web", "Applied", "True").await?;
    // One manifest that cannot be mapped does not keep the others from being pruned.
    delete(&works, "web").await?;
    Ok(())
}

const TOYS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.toys.example.com}
spec:
  group: toys.example.com
  names: {kind: Toy, plural: toys, singular: toy, listKind: ToyList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
