//! What is easily lost: fields of others, a cluster that is its own hub, works that end by themselves.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;
use writ_api::work::ManifestWork;

use super::support::{
    accept, agent, change, condition, config_map, config_maps, create, delete, gone, holds, spoke, works,
};
use crate::{
    Fleet,
    fleet::{self, AGENT_NAMESPACE},
    wait, yaml,
};

/// A kind whose status is a field like any other.
const TOYS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.toys.example.com}
spec:
  group: toys.example.com
  scope: Namespaced
  names: {kind: Toy, plural: toys, singular: toy, listKind: ToyList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A status without a subresource, and what other managers own, survive every revision and every repair.
pub async fn fields_of_others(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, TOYS).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("toys.example.com", "v1", "Toy"));
    let toys: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let spec = |colour: &str| {
        json!({"workload": {"manifests": [{"apiVersion": "toys.example.com/v1", "kind": "Toy",
            "metadata": {"namespace": "default", "name": "t"}, "spec": {"colour": colour}}]}})
    };
    create(&works, "toys", spec("red")).await?;
    condition(&works, "toys", "Applied", "True").await?;
    let theirs =
        json!({"metadata": {"labels": {"theirs": "yes"}}, "spec": {"size": 3}, "status": {"phase": "Fine"}});
    toys.patch("t", &PatchParams::default(), &Patch::Merge(&theirs))
        .await?;
    let has = |colour: &'static str| {
        let toys = &toys;
        async move {
            wait::until_true(
                &format!("the toy is {colour}, with what others wrote"),
                || async {
                    let toy = toys.get("t").await?;
                    let at = |pointer: &str| toy.data.pointer(pointer).cloned().unwrap_or_default();
                    ensure!(at("/spec/size") == json!(3), "spec of others: {toy:?}");
                    ensure!(at("/status/phase") == json!("Fine"), "status: {toy:?}");
                    ensure!(
                        toy.metadata
                            .labels
                            .iter()
                            .flatten()
                            .any(|(key, _)| key == "theirs"),
                        "labels of others: {toy:?}"
                    );
                    Ok(at("/spec/colour") == colour)
                },
            )
            .await
        }
    };
    has("red").await?;
    change(&works, "toys", json!({"spec": spec("blue")})).await?;
    has("blue").await?;
    let drift = json!({"spec": {"colour": "grey"}});
    toys.patch("t", &PatchParams::default(), &Patch::Merge(&drift))
        .await?;
    has("blue").await
}

/// One API server is hub and managed cluster at once.
pub async fn its_own_hub(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    yaml::apply_folder(&admin, "agent").await?;
    accept(&fleet, "local").await?;
    let hub = fleet.agent_identity("local").await?;
    let spoke = fleet.hub.service_account(AGENT_NAMESPACE, "writ-agent").await?;
    let options = writ_agent::Options {
        cluster_name: "local".into(),
        controllers: vec!["work".into()],
        ..writ_agent::Options::default()
    };
    let _agent = fleet::start("the agent", |health, shutdown| {
        writ_agent::run(hub, spoke, options, health, shutdown)
    })
    .await?;
    let works: Api<ManifestWork> = Api::namespaced(admin.clone(), "local");
    let maps = config_maps(&admin, "default");
    let spec = |value: &str| json!({"workload": {"manifests": [config_map("default", "here", value)]}});
    create(&works, "here", spec("1")).await?;
    condition(&works, "here", "Available", "True").await?;
    change(&works, "here", json!({"spec": spec("2")})).await?;
    holds(&maps, "here", "2").await?;
    delete(&works, "here").await?;
    gone(&maps, "here").await
}

/// A work that is complete goes when its time is over, and not before it is complete.
pub async fn ends_by_itself(fleet: Fleet) -> Result<()> {
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["work_ttl".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let spec = |value: &str| {
        json!({"workload": {"manifests": [config_map("default", "task", value)]},
            "deleteOption": {"propagationPolicy": "Foreground", "ttlSecondsAfterFinished": 1},
            "manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": "task"},
                "conditionRules": [{"condition": "Complete", "type": "CEL", "celExpressions": ["object.data.key == 'done'"]}]}]})
    };
    create(&works, "task", spec("busy")).await?;
    condition(&works, "task", "Complete", "False").await?;
    change(&works, "task", json!({"spec": spec("done")})).await?;
    gone(&maps, "task").await?;
    wait::until_true("the work is gone", || async {
        Ok(works.get_opt("task").await?.is_none())
    })
    .await
}

/// Works that wait for a kind that never comes hold up nobody else.
pub async fn waiting(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, TOYS).await?;
    create(
        &works,
        "other",
        json!({"workload": {"manifests": [config_map("default", "other", "1")]}}),
    )
    .await?;
    let maps = config_maps(&client, "default");
    holds(&maps, "other", "1").await?;
    for number in 0..3 {
        // The definition is taken, and never established: its singular is that of another.
        let (group, plural) = ("toys.example.com", format!("copies{number}"));
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Namespaced",
                "names": {"kind": format!("Copy{number}"), "plural": plural, "singular": "toy"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        let copies = (0..20).map(|copy| {
            json!({"apiVersion": format!("{group}/v1"), "kind": format!("Copy{number}"),
                "metadata": {"namespace": "default", "name": format!("c{copy}")}})
        });
        let manifests: Vec<_> = std::iter::once(definition).chain(copies).collect();
        create(&works, &plural, json!({"workload": {"manifests": manifests}})).await?;
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    wait::until_true("the definitions are taken", || async {
        let list = definitions.list(&ListParams::default()).await?;
        Ok(list.iter().filter(|d| d.name_any().starts_with("copies")).count() == 3)
    })
    .await?;
    let started = Instant::now();
    let drift = json!({"data": {"key": "drift"}});
    maps.patch("other", &PatchParams::default(), &Patch::Merge(&drift))
        .await?;
    holds(&maps, "other", "1").await?;
    // The others wait for ten seconds, and would for each of their manifests.
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(5), "drift was repaired after {took:?}");
    for number in 0..3 {
        condition(&works, &format!("copies{number}"), "Applied", "False").await?;
    }
    Ok(())
}
