//! Which fields of an object are written: those that are not ignored, and also those that cannot be applied.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::support::{
    agent, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
    spoke, works,
};
use crate::{Fleet, wait};

/// Waits until a ConfigMap holds this value under another key.
async fn says(maps: &Api<ConfigMap>, name: &str, key: &str, value: &str) -> Result<ConfigMap> {
    wait::until(&format!("ConfigMap {name} with {key}={value}"), || async {
        let found = maps.get(name).await?;
        let said = found.data.as_ref().and_then(|data| data.get(key));
        if said.map(String::as_str) != Some(value) {
            anyhow::bail!("it has {:?}", found.data);
        }
        Ok(Some(found))
    })
    .await
}

/// Of an object with ignored fields, the others are kept as the manifest says; the ignored ones are left as they are, and
/// are not taken away either.
pub async fn ignored(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    for (name, when) in [("present", "OnSpokePresent"), ("changed", "OnSpokeChange")] {
        let manifest = |other: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name},
                "data": {"key": "1", "other": other}})
        };
        let spec = json!({"workload": {"manifests": [manifest("1")]}, "manifestConfigs": [{
            "resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": name},
            "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"force": true,
                "ignoreFields": [{"condition": when, "jsonPaths": [".data.key"]}]}}}]});
        create(&works, name, spec).await?;
        holds(&maps, name, "1").await?;
        condition(&works, name, "Applied", "True").await?;

        // Nobody has changed the field: it does not go with the first change of another.
        change(
            &works,
            name,
            json!({"spec": {"workload": {"manifests": [manifest("2")]}}}),
        )
        .await?;
        says(&maps, name, "other", "2").await?;
        holds(&maps, name, "1").await?;

        // Somebody changes both. Only what is ignored stays as he wrote it.
        let edit = json!({"data": {"key": "edited", "other": "drift"}});
        maps.patch(name, &PatchParams::apply("somebody"), &Patch::Merge(&edit))
            .await?;
        let map = says(&maps, name, "other", "2").await?;
        let key = map.data.as_ref().and_then(|data| data.get("key"));
        ensure!(key.map(String::as_str) == Some("edited"), "{:?}", map.data);

        // He owns it now, and goes on: nobody fights with him.
        let before = map.metadata.resource_version;
        let edit = json!({"data": {"key": "again"}});
        let edited = maps
            .patch(name, &PatchParams::apply("somebody"), &Patch::Merge(&edit))
            .await?;
        ensure!(edited.metadata.resource_version != before);
        change(&works, name, json!({"metadata": {"labels": {"look": "again"}}})).await?;
        // A look at the object that ends in a write of another work's: what is to happen has happened.
        create(
            &works,
            &format!("after-{name}"),
            json!({"workload": {"manifests": [config_map("default", &format!("after-{name}"), "1")]}}),
        )
        .await?;
        condition(&works, &format!("after-{name}"), "Applied", "True").await?;
        let after = maps.get(name).await?.metadata.resource_version;
        ensure!(after == edited.metadata.resource_version, "it was written again");
    }
    Ok(())
}

/// An object that Kubernetes takes is delivered, kept true and removed, though it cannot be applied.
pub async fn not_applicable(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let labels = json!({"app": "web"});
    let deployment = |replicas: u32, env: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web",
                    "env": env, "ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}]}]}}}})
    };
    let twice = json!([{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]);
    let mut unknown = config_map("default", "unknown", "1");
    if let Some(map) = unknown.as_object_mut() {
        map.insert("dataa".into(), json!({"key": "1"}));
    }
    let spec = |deployment: Value| json!({"workload": {"manifests": [deployment, unknown]}});
    create(&works, "odd", spec(deployment(2, twice.clone()))).await?;
    let work = condition(&works, "odd", "Applied", "True").await?;
    ensure!(manifest_condition(&work, 0, "Available")?.0 == "True");
    holds(&maps, "unknown", "1").await?;
    let seen = |live: &Deployment| {
        let value = serde_json::to_value(live).unwrap_or_default();
        let container = value.pointer("/spec/template/spec/containers/0").cloned();
        let env = container.as_ref().and_then(|c| c.pointer("/env")).cloned();
        (
            live.spec.as_ref().and_then(|spec| spec.replicas),
            env.unwrap_or_default(),
        )
    };
    let live = deployments.get("web").await?;
    ensure!(seen(&live) == (Some(2), twice.clone()), "{:?}", seen(&live));
    ensure!(live.owner_references().len() == 1);

    // Drift is repaired, and what others added stays.
    let edit = json!({"metadata": {"labels": {"theirs": "1"}}, "spec": {"replicas": 5}});
    deployments
        .patch("web", &PatchParams::apply("somebody"), &Patch::Merge(&edit))
        .await?;
    let edit = json!({"data": {"key": "drift"}});
    maps.patch("unknown", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    let (deployments, seen) = (&deployments, &seen);
    let repaired = |replicas: i32| {
        wait::until("the Deployment is as it should be", move || async move {
            let live = deployments.get("web").await?;
            Ok((seen(&live).0 == Some(replicas)).then_some(live))
        })
    };
    let live = repaired(2).await.context("drift")?;
    ensure!(live.labels().contains_key("theirs"), "what others added is gone");
    holds(&maps, "unknown", "1").await?;

    // A change of the manifest is written once; then nothing is.
    change(&works, "odd", json!({"spec": spec(deployment(3, json!([])))})).await?;
    condition(&works, "odd", "Applied", "True").await?;
    let live = repaired(3).await.context("change")?;
    ensure!(
        seen(&live).1.as_array().is_none_or(Vec::is_empty),
        "{:?}",
        seen(&live)
    );
    let edit = json!({"metadata": {"labels": {"theirs": "2"}}});
    let edited = deployments
        .patch("web", &PatchParams::apply("somebody"), &Patch::Merge(&edit))
        .await?;
    create(
        &works,
        "after",
        json!({"workload": {"manifests": [config_map("default", "after", "1")]}}),
    )
    .await?;
    condition(&works, "after", "Applied", "True").await?;
    let after = deployments.get("web").await?;
    ensure!(
        after.resource_version() == edited.resource_version(),
        "it was written again"
    );
    delete(&works, "odd").await?;
    gone(&maps, "unknown").await?;
    ensure!(deployments.get_opt("web").await?.is_none());
    Ok(())
}
