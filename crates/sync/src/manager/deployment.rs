//! One Deployment per sync, for those who want a process for each.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, runtime::reflector::ObjectRef};
use serde_json::json;
use writ_controller::{Error, write};

use super::{apply, observe::Stores, plan};
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
            // Two reconcilers of one sync would get in each other's way.
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

/// Makes the Deployment, or brings it back to what it shall be.
pub async fn ensure(client: &Client, stores: &Stores, options: &Options, id: &SyncId) -> Result<(), Error> {
    let wanted = deployment(options, id)?;
    let api: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let current = stores
        .deployments
        .get(&ObjectRef::new(&names::reconciler(id)).within(SYSTEM_NAMESPACE));
    // The selector cannot change: one with another was made by somebody else.
    let replace = |have: &Deployment| {
        have.spec.as_ref().map(|spec| &spec.selector) != wanted.spec.as_ref().map(|spec| &spec.selector)
    };
    apply::ensure(&api, current.as_deref(), &wanted, replace).await?;
    Ok(())
}

/// Why the Deployment of a sync does not run yet; nothing if it does.
pub fn waiting(stores: &Stores, id: &SyncId) -> Option<String> {
    let name = names::reconciler(id);
    let current = stores
        .deployments
        .get(&ObjectRef::new(&name).within(SYSTEM_NAMESPACE));
    let status = current.as_ref().and_then(|deployment| deployment.status.as_ref());
    if status.and_then(|status| status.available_replicas) >= Some(1) {
        return None;
    }
    // What is wrong is said by a condition that is not as it should be, quotas and broken images among them.
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let failed = conditions
        .iter()
        .find(|condition| (condition.type_ == "ReplicaFailure") == (condition.status == "True"));
    let said = failed.and_then(|condition| condition.message.as_deref());
    Some(format!(
        "the Deployment {name} does not run: {}",
        said.unwrap_or("no pod is available")
    ))
}

/// Removes the Deployment of a sync, if there is one: two reconcilers would get in each other's way.
pub async fn remove(client: &Client, stores: &Stores, id: &SyncId) -> Result<(), Error> {
    let name = names::reconciler(id);
    let Some(current) = stores
        .deployments
        .get(&ObjectRef::new(&name).within(SYSTEM_NAMESPACE))
    else {
        return Ok(());
    };
    let api: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    write::delete(&api, &name, current.metadata.uid.as_deref()).await
}
