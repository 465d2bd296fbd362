//! The bare loop: the writes that must happen, in the agent's order and with its concurrency, and nothing else.

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use writ_api::work::{
    APPLIED_MANIFEST_WORK_FINALIZER, AppliedManifestWork, MANIFEST_WORK_FINALIZER, ManifestWork,
};

/// How many objects of one work are written at once; the agent's number.
const OBJECTS: usize = 16;

/// How many objects of all works are written at once; the agent's number.
static TURNS: Semaphore = Semaphore::const_new(24);

/// How many works are looked at side by side; the agent's number.
pub const WORKS: usize = 10;

/// A ConfigMap as a manifest.
pub fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
        "data": {"key": "value", "more": "some text that takes a little room"}})
}

/// A work of so many ConfigMaps.
pub fn work(name: &str, namespace: &str, manifests: usize) -> Result<ManifestWork> {
    let manifests: Vec<Value> = (0..manifests)
        .map(|n| config_map(namespace, &format!("{name}-{n}")))
        .collect();
    Ok(serde_json::from_value(
        json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": name}, "spec": {"workload": {"manifests": manifests}}}),
    )?)
}

/// Delivers one work.
pub async fn deliver(works: &Api<ManifestWork>, cluster: &Client, work: &ManifestWork) -> Result<()> {
    let name = work.name_any();
    let finalizer = json!({"metadata": {"finalizers": [MANIFEST_WORK_FINALIZER]}});
    let merge = PatchParams::default();
    let (patch, anchors) = (
        Patch::Merge(&finalizer),
        Api::<AppliedManifestWork>::all(cluster.clone()),
    );
    let anchor: AppliedManifestWork = serde_json::from_value(
        json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "metadata": {"name": format!("bare-{name}"), "finalizers": [APPLIED_MANIFEST_WORK_FINALIZER]},
        "spec": {"hubHash": "bare", "agentID": "bare", "manifestWorkName": name}}),
    )?;
    let post = PostParams::default();
    let (_, anchor) = tokio::try_join!(works.patch(&name, &merge, &patch), anchors.create(&post, &anchor))?;
    objects(cluster, work, anchor.uid().as_deref()).await?;
    report(works, work).await
}

/// Writes the status of a work.
pub async fn report(works: &Api<ManifestWork>, work: &ManifestWork) -> Result<()> {
    let status = json!({"status": status(work)});
    let merge = PatchParams::default();
    works
        .patch_status(&work.name_any(), &merge, &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// Creates the objects of a work.
pub async fn objects(cluster: &Client, work: &ManifestWork, owner: Option<&str>) -> Result<()> {
    let writes = work.spec.workload.manifests.iter().map(|manifest| async move {
        let mut object: ConfigMap = serde_json::from_value(manifest.0.clone())?;
        if let Some(uid) = owner {
            object.metadata.owner_references = Some(vec![serde_json::from_value(
                json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
                "name": format!("bare-{}", work.name_any()), "uid": uid}),
            )?]);
        }
        let api: Api<ConfigMap> =
            Api::namespaced(cluster.clone(), object.namespace().as_deref().unwrap_or_default());
        let _turn = TURNS.acquire().await?;
        api.create(&PostParams::default(), &object).await?;
        anyhow::Ok(())
    });
    let writes: Vec<_> = writes.collect();
    stream::iter(writes)
        .buffer_unordered(OBJECTS)
        .try_collect::<()>()
        .await
}

/// What the agent would report.
fn status(work: &ManifestWork) -> Value {
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let text = |value: &Value, path: &str| value.pointer(path).cloned().unwrap_or_default();
    let manifests: Vec<Value> = work
        .spec
        .workload
        .manifests
        .iter()
        .enumerate()
        .map(|(ordinal, manifest)| {
            json!({"resourceMeta": {"ordinal": ordinal, "group": "", "version": "v1", "kind": "ConfigMap",
                    "resource": "configmaps", "namespace": text(&manifest.0, "/metadata/namespace"),
                    "name": text(&manifest.0, "/metadata/name")},
                "statusFeedback": {},
                "conditions": [
                    condition("Applied", "AppliedManifestComplete", "Apply manifest complete"),
                    condition("Available", "ResourceAvailable", "Resource is available"),
                    condition("StatusFeedbackSynced", "NoStatusFeedbackSynced", "")]})
        })
        .collect();
    json!({"conditions": [
            condition("Applied", "AppliedManifestWorkComplete", "Apply manifest work complete"),
            condition("Available", "ResourcesAvailable", "All resources are available")],
        "resourceStatus": {"manifests": manifests}})
}
