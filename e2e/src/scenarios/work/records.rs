//! Records of what was applied, by somebody who may write them.

use anyhow::{Context, Result};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_api::work::AppliedManifestWork;

use super::support::{agent, condition, config_map, config_maps, create, delete, gone, spoke, works};
use crate::{Fleet, wait};

/// A record whose name is more than a name leads nowhere when the work goes, and keeps nothing waiting.
pub async fn misled(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let manifests = json!([config_map("default", "own", "1")]);
    create(&works, "w", json!({"workload": {"manifests": manifests}})).await?;
    condition(&works, "w", "Applied", "True").await?;

    let records: Api<AppliedManifestWork> = Api::all(client.clone());
    // The record is written beside the report.
    let mut record = wait::until("what was applied is recorded", || async {
        let mut listed = records.list(&ListParams::default()).await?.items.into_iter();
        Ok(listed.find(|record| {
            let status = record.status.as_ref();
            status.is_some_and(|status| status.applied_resources.len() == 1)
        }))
    })
    .await?;
    // The victim says that it is the work's; somebody else's it is too, so that only the agent could delete it.
    let victims = config_maps(&client, "kube-public");
    let post = PostParams::default();
    let keeper = serde_json::from_value(config_map("kube-public", "keeper", "1"))?;
    let keeper = victims.create(&post, &keeper).await?;
    let owners = json!([
        {"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
            "name": record.name_any(), "uid": record.uid()},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "uid": keeper.uid()},
    ]);
    let mut victim = config_map("kube-public", "victim", "1");
    if let Some(metadata) = victim.get_mut("metadata").and_then(|m| m.as_object_mut()) {
        metadata.insert("ownerReferences".into(), owners);
    }
    victims.create(&post, &serde_json::from_value(victim)?).await?;

    let resources = &mut record.status.get_or_insert_default().applied_resources;
    for (group, resource, namespace, name) in [
        ("", "namespaces", "", "kube-public/configmaps/victim"),
        ("", "configmaps", "kube-public/configmaps/victim?", "x"),
        ("", "configmaps", "", "victim"),
        ("apps/../../api", "configmaps", "kube-public", "victim"),
    ] {
        resources.push(serde_json::from_value(
            json!({"group": group, "version": "v1", "resource": resource,
            "namespace": namespace, "name": name, "uid": ""}),
        )?);
    }
    let patch = json!({"status": {"appliedResources": resources}});
    records
        .patch_status(&record.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
        .await?;

    delete(&works, "w").await?;
    gone(&config_maps(&client, "default"), "own").await?;
    victims.get("victim").await.context("the victim is gone")?;
    Ok(())
}
