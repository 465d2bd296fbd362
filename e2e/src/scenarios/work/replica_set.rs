//! A ManifestWorkReplicaSet reaches the clusters of its placements, step by step.

use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_api::{
    cluster::{Placement, PlacementDecision},
    work::{ManifestWork, ManifestWorkReplicaSet, REPLICA_SET_LABEL},
};

use super::support::config_map;
use crate::{Fleet, wait};

/// One cluster at a time, the next when the first has succeeded; all gone with the set.
pub async fn rollout(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["replica_set".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    let clusters = ["c1", "c2"];
    for cluster in clusters {
        fleet.hub.namespace(cluster).await?;
    }
    let placements: Api<Placement> = Api::namespaced(admin.clone(), "default");
    let decisions: Api<PlacementDecision> = Api::namespaced(admin.clone(), "default");
    choose(&admin, &clusters).await?;
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(admin.clone(), "default");
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "web"},
        "spec": {"manifestWorkTemplate": {"workload": {"manifests": [config_map("default", "a", "1")]}},
            "placementRefs": [{"name": "all", "rolloutStrategy": {"type": "Progressive", "progressive": {"maxConcurrency": 1}}}]}}))?;
    sets.create(&PostParams::default(), &set).await?;
    let made = || async {
        let api: Api<ManifestWork> = Api::all(admin.clone());
        let list = api.list(&ListParams::default().labels(REPLICA_SET_LABEL)).await?;
        anyhow::Ok(list.items)
    };
    let first = wait::until("the first work", || async { Ok(made().await?.pop()) }).await?;
    ensure!(first.namespace().as_deref() == Some("c1"));
    ensure!(made().await?.len() == 1, "one at a time");
    // The agent of the first cluster reports success: the second gets it.
    for cluster in clusters {
        let works: Api<ManifestWork> = Api::namespaced(admin.clone(), cluster);
        let work = wait::until(&format!("the work of {cluster}"), || async {
            Ok(works.list(&ListParams::default()).await?.items.pop())
        })
        .await?;
        let time = "2026-01-01T00:00:00Z";
        let condition = |type_: &str| {
            json!({"type": type_, "status": "True", "reason": "Done", "message": "",
                "observedGeneration": work.metadata.generation, "lastTransitionTime": time})
        };
        let status = json!({"status": {"conditions": [condition("Applied"), condition("Available")]}});
        works
            .patch_status(&work.name_any(), &PatchParams::default(), &Patch::Merge(&status))
            .await?;
    }
    wait::until_true("the rollout is complete", || async {
        let set = sets.get("web").await?;
        let status = set.status.unwrap_or_default();
        Ok(status
            .conditions
            .iter()
            .any(|c| c.type_ == "PlacementRolledOut" && c.status == "True")
            && status.summary.applied == 2)
    })
    .await?;
    // Somebody puts the set's label on a work that is not the set's.
    let works: Api<ManifestWork> = Api::namespaced(admin.clone(), "c1");
    let theirs: ManifestWork = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "theirs", "labels": {"work.open-cluster-management.io/manifestworkreplicaset": "default.web"}},
        "spec": {"workload": {"manifests": [config_map("default", "theirs", "1")]}}}))?;
    works.create(&PostParams::default(), &theirs).await?;
    // A cluster that is not chosen any more loses its work.
    decisions
        .patch_status(
            "all-1",
            &PatchParams::default(),
            &Patch::Merge(&json!({"status": {"decisions": [{"clusterName": "c2", "reason": ""}]}})),
        )
        .await?;
    wait::until_true("one work is left, and theirs", || async {
        Ok(made().await?.len() == 2)
    })
    .await?;
    // A placement that is deleted takes no work with it, whether its decisions are already gone or not.
    let all = |work: &&ManifestWork| work.namespace().as_deref() == Some("c2");
    placements.delete("all", &DeleteParams::default()).await?;
    decisions
        .patch_status(
            "all-1",
            &PatchParams::default(),
            &Patch::Merge(&json!({"status": {"decisions": []}})),
        )
        .await?;
    wait::until_true("the set says that the placement is not there", || async {
        let status = sets.get("web").await?.status.unwrap_or_default();
        Ok(status
            .conditions
            .iter()
            .any(|c| c.reason == "PlacementDecisionNotFound" && c.message.contains("stay as they are")))
    })
    .await?;
    // On a real cluster the decisions go with the placement.
    let _ = decisions.delete("all-1", &DeleteParams::default()).await;
    // The set is looked at after that, too.
    let more = json!({"spec": {"manifestWorkTemplate": {"workload": {"manifests": [config_map("default", "a", "2")]}}}});
    let changed = sets
        .patch("web", &PatchParams::default(), &Patch::Merge(&more))
        .await?;
    wait::until_true("the set was looked at again", || async {
        let status = sets.get("web").await?.status.unwrap_or_default();
        let seen = |c: &Condition| c.observed_generation == changed.metadata.generation;
        Ok(status.conditions.iter().all(seen))
    })
    .await?;
    let kept = made().await?;
    let kept = kept.iter().find(all);
    ensure!(kept.is_some_and(|work| work.metadata.deletion_timestamp.is_none()));
    sets.delete("web", &DeleteParams::default()).await?;
    wait::until_true("no work is left but theirs", || async {
        Ok(made().await?.len() == 1 && sets.get_opt("web").await?.is_none())
    })
    .await?;
    ensure!(works.get("theirs").await?.metadata.deletion_timestamp.is_none());
    Ok(())
}

/// A placement `all` that has decided for these clusters.
async fn choose(client: &Client, clusters: &[&str]) -> Result<()> {
    let placements: Api<Placement> = Api::namespaced(client.clone(), "default");
    let placement: Placement = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": "all"}, "spec": {}}))?;
    placements.create(&PostParams::default(), &placement).await?;
    let decisions: Api<PlacementDecision> = Api::namespaced(client.clone(), "default");
    let decision: PlacementDecision = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "PlacementDecision",
        "metadata": {"name": "all-1", "labels": {"cluster.open-cluster-management.io/placement": "all",
            "cluster.open-cluster-management.io/decision-group-index": "0"}}}))?;
    decisions.create(&PostParams::default(), &decision).await?;
    let chosen: Vec<_> = clusters
        .iter()
        .map(|name| json!({"clusterName": name, "reason": ""}))
        .collect();
    decisions
        .patch_status(
            "all-1",
            &PatchParams::default(),
            &Patch::Merge(&json!({"status": {"decisions": chosen}})),
        )
        .await?;
    Ok(())
}

/// Of three clusters the first has no namespace: the others get their works, the status says who does not and why, and
/// the first gets its own when its namespace appears.
pub async fn one_bad_cluster(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["replica_set".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    let clusters = ["aaa-gone", "cluster1", "zcluster"];
    for cluster in ["cluster1", "zcluster"] {
        fleet.hub.namespace(cluster).await?;
    }
    choose(&admin, &clusters).await?;
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(admin.clone(), "default");
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "web"},
        "spec": {"manifestWorkTemplate": {"workload": {"manifests": [config_map("default", "a", "1")]}},
            "placementRefs": [{"name": "all"}]}}))?;
    sets.create(&PostParams::default(), &set).await?;
    let has_work = |cluster: &'static str| {
        let works: Api<ManifestWork> = Api::namespaced(admin.clone(), cluster);
        async move { Ok(!works.list(&ListParams::default()).await?.items.is_empty()) }
    };
    for cluster in ["cluster1", "zcluster"] {
        wait::until_true(&format!("the work of {cluster}"), || has_work(cluster)).await?;
    }
    let says = |type_: &'static str| {
        let sets = sets.clone();
        async move {
            let status = sets.get("web").await?.status.unwrap_or_default();
            let found = status.conditions.into_iter().find(|c| c.type_ == type_);
            anyhow::Ok(found.map(|c| (c.status, c.message)).unwrap_or_default())
        }
    };
    for type_ in ["PlacementRolledOut", "ManifestworkApplied"] {
        wait::until_true(&format!("{type_} names the cluster"), || async {
            let (status, message) = says(type_).await?;
            let named = message.contains("ManifestWork aaa-gone/web-") && message.contains("not found");
            Ok(status == "False" && message.starts_with("1 of 3 clusters") && named)
        })
        .await?;
    }
    ensure!(
        says("PlacementVerified").await?.0 == "True",
        "clusters are selected"
    );
    fleet.hub.namespace("aaa-gone").await?;
    wait::until_true("the work of aaa-gone", || has_work("aaa-gone")).await?;
    wait::until_true("nobody is named any more", || async {
        Ok(says("ManifestworkApplied").await?.1.is_empty())
    })
    .await
}

/// A work that has the name of a set's work, and is not the set's: it stays as it is, and the status names it. The set
/// has its place once it is gone.
pub async fn a_work_of_others(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["replica_set".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    fleet.hub.namespace("c1").await?;
    choose(&admin, &["c1"]).await?;
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(admin.clone(), "default");
    let works: Api<ManifestWork> = Api::namespaced(admin.clone(), "c1");
    let spec = |value: &str| {
        json!({"manifestWorkTemplate": {"workload": {"manifests": [config_map("default", "a", value)]}},
            "placementRefs": [{"name": "all"}]})
    };
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "web"}, "spec": spec("1")}))?;
    sets.create(&PostParams::default(), &set).await?;
    let made = wait::until("the work", || async {
        Ok(works.list(&ListParams::default()).await?.items.pop())
    })
    .await?;
    // Nobody can tell any more that it is the set's.
    let unlabelled = json!({"metadata": {"labels": null}});
    works
        .patch(
            &made.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&unlabelled),
        )
        .await?;
    sets.patch(
        "web",
        &PatchParams::default(),
        &Patch::Merge(&json!({"spec": spec("2")})),
    )
    .await?;
    let full = format!("ManifestWork c1/{}", made.name_any());
    wait::until_true("the status names the work", || async {
        let status = sets.get("web").await?.status.unwrap_or_default();
        let said = |c: &Condition| c.type_ == "ManifestworkApplied" && c.message.contains(&full);
        Ok(status.conditions.iter().any(said))
    })
    .await?;
    let found = works.get(&made.name_any()).await?;
    ensure!(
        found.spec == made.spec && found.labels().is_empty(),
        "it is as it was"
    );
    works.delete(&made.name_any(), &DeleteParams::default()).await?;
    wait::until_true("the set's own work", || async {
        let own = works.get_opt(&made.name_any()).await?;
        Ok(own.is_some_and(|own| own.uid() != made.uid() && own.spec != made.spec))
    })
    .await
}
