//! The life of a work's objects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;
use writ_api::work::{AppliedManifestWork, MANIFEST_WORK_FINALIZER, ManifestWork};

use super::support::{
    agent, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
    spoke, works,
};
use crate::{Fleet, at_once, wait};

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
    // The record and the report are written side by side.
    let anchor = wait::until("three objects are recorded", || async {
        let found = anchors.list(&ListParams::default()).await?.items;
        ensure!(found.len() == 1, "one AppliedManifestWork, not {}", found.len());
        let anchor = found.into_iter().next().context("an AppliedManifestWork")?;
        let status = anchor.status.clone().unwrap_or_default();
        Ok((status.applied_resources.len() == 3).then_some(anchor))
    })
    .await?;
    ensure!(anchor.name_any().ends_with("-web"));
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
    at_once("the slowest repair", slowest)?;
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
    at_once("healing", started.elapsed())?;
    crate::yaml::apply(&client, TOYS).await?;
    condition(&works, "web", "Applied", "True").await?;
    // One manifest that cannot be mapped does not keep the others from being pruned.
    delete(&works, "web").await?;
    Ok(())
}

/// A work of a newer API than the agent's says so itself, holds up nobody, loses nothing and can be deleted.
pub async fn not_understood(fleet: Fleet) -> Result<()> {
    let options = writ_agent::Options {
        work: writ_agent::options::WorkOptions {
            eviction_grace_period: Duration::from_secs(1),
            ..Default::default()
        },
        ..Default::default()
    };
    let _agent = agent(&fleet, options).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let of = |name: &str| json!({"workload": {"manifests": [config_map("default", name, "1")]}});
    create(&works, "newer", of("newer")).await?;
    condition(&works, "newer", "Applied", "True").await?;

    // A hub whose API has one strategy more.
    let admin = fleet.hub.admin().await?;
    let definitions: Api<DynamicObject> = Api::all_with(
        admin.clone(),
        &ApiResource::erase::<CustomResourceDefinition>(&()),
    );
    let name = "manifestworks.work.open-cluster-management.io";
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/manifestConfigs/items\
                /properties/updateStrategy/properties/type/enum/-";
    let more = Patch::Json::<()>(serde_json::from_value(
        json!([{"op": "add", "path": path, "value": "Future"}]),
    )?);
    definitions.patch(name, &PatchParams::default(), &more).await?;
    let raw: Api<DynamicObject> =
        Api::namespaced_with(admin, "cluster1", &ApiResource::erase::<ManifestWork>(&()));
    let future = json!({"spec": {"manifestConfigs": [{"updateStrategy": {"type": "Future"},
        "resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": "newer"}}]}});
    wait::until_true("the hub takes it", || async {
        raw.patch("newer", &PatchParams::default(), &Patch::Merge(&future))
            .await?;
        Ok(true)
    })
    .await?;
    wait::until_true("the work says that it is not understood", || async {
        let status = serde_json::to_string(&raw.get("newer").await?.data)?;
        ensure!(status.contains("cannot parse it"), "{status}");
        Ok(true)
    })
    .await?;
    create(&works, "other", of("other")).await?;
    holds(&maps, "other", "1").await?;
    // Longer than what is gone from the hub may stay.
    tokio::time::sleep(Duration::from_secs(3)).await;
    holds(&maps, "newer", "1").await?;
    raw.delete("newer", &DeleteParams::default()).await?;
    gone(&maps, "newer").await?;
    wait::until_true("the work is gone", || async {
        Ok(raw.get_opt("newer").await?.is_none())
    })
    .await
}

/// The definition of a kind.
pub const TOYS: &str = "
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
