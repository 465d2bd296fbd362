//! One Deployment per sync, for [`crate::Isolation::Pod`].

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use serde_json::json;
use writ_controller::{Error, Name, write};

use super::{apply, observe::Caches, plan};
use crate::{
    Options,
    model::{SYSTEM_NAMESPACE, SyncId},
    names,
};

/// The command that the Deployment of a sync runs.
pub fn command(id: &SyncId) -> Vec<String> {
    ["writ", "sync", "--reconcile", &id.to_string()]
        .map(str::to_owned)
        .into()
}

/// The Deployment of a sync.
pub fn deployment(options: &Options, id: &SyncId) -> Result<Deployment, Error> {
    let name = names::reconciler(id);
    let mut labels = names::labels(id);
    labels.insert("app".into(), "reconciler".into());
    labels.insert("configsync.gke.io/reconciler".into(), name.clone());
    serde_json::from_value(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": plan::metadata(id, SYSTEM_NAMESPACE, name.clone()),
        "spec": {
            "replicas": 1,
            // Two reconcilers of one sync would interfere.
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": { "configsync.gke.io/reconciler": name } },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": name,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "reconciler",
                        "image": options.image,
                        "command": command(id),
                        "env": [{ "name": "TMPDIR", "value": "/cache" }],
                        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                        "volumeMounts": [{ "name": "cache", "mountPath": "/cache" }],
                    }],
                    "volumes": [{ "name": "cache", "emptyDir": {} }],
                },
            },
        },
    }))
    .map_err(|error| Error::Invalid(format!("the Deployment of {id}: {error}")))
}

/// The name of the Deployment of a sync.
fn name(id: &SyncId) -> Name {
    Name::new(SYSTEM_NAMESPACE, names::reconciler(id))
}

/// Makes the Deployment of a sync as it must be.
pub async fn ensure(client: &Client, caches: &Caches, options: &Options, id: &SyncId) -> Result<(), Error> {
    let wanted = deployment(options, id)?;
    let api: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    // A selector cannot be changed.
    let selector = |deployment: &Deployment| deployment.spec.as_ref().map(|spec| spec.selector.clone());
    let must_recreate = |have: &Deployment| selector(have) != selector(&wanted);
    let current = caches.deployments.get(&name(id));
    apply::ensure(&api, current.as_deref(), &wanted, &must_recreate).await?;
    Ok(())
}

/// Why the Deployment of a sync is not available; `None` if it is.
pub fn unavailable(caches: &Caches, id: &SyncId) -> Option<String> {
    let current = caches.deployments.get(&name(id));
    let status = current.as_ref().and_then(|deployment| deployment.status.as_ref());
    if status.and_then(|status| status.available_replicas) >= Some(1) {
        return None;
    }
    // The reason is in a condition that is not as it should be, also for quotas and broken images.
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let failed = conditions
        .iter()
        .find(|condition| (condition.type_ == "ReplicaFailure") == (condition.status == "True"));
    let reason = failed.and_then(|condition| condition.message.as_deref());
    Some(format!(
        "the Deployment {} does not run: {}",
        names::reconciler(id),
        reason.unwrap_or("no pod is available")
    ))
}

/// Removes the Deployment of a sync, if there is one: two reconcilers of one sync would interfere.
pub async fn remove(client: &Client, caches: &Caches, id: &SyncId) -> Result<(), Error> {
    let name = name(id);
    let Some(current) = caches.deployments.get(&name) else {
        return Ok(());
    };
    let api: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    write::delete(&api, &name.name, current.metadata.uid.as_deref()).await
}
