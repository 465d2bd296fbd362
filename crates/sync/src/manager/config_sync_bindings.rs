//! Rights that Config Sync's own manager gave to the accounts of syncs, in bindings that several syncs share.
//!
//! A cluster that ran Config Sync still has each account in them, and through one of them `cluster-admin`, whatever the
//! roleRefs of the sync are. The account is taken out, and a binding without subjects is deleted.

use k8s_openapi::api::rbac::v1::Subject;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_controller::{Error, error::Context as _, write};

use super::{
    model::{Binding, shared_bindings},
    observe::Caches,
    plan,
};
use crate::model::{SYSTEM_NAMESPACE, SyncId};

/// Takes the account of a sync out of every shared binding. Returns true if it was in one.
pub async fn revoke(client: &Client, caches: &Caches, id: &SyncId) -> Result<bool, Error> {
    let subject = plan::subject(id);
    let mut is_changed = false;
    for (_, kept) in caches.cluster_role_bindings.all_indexed(shared_bindings()) {
        if let Some(binding) = kept.whole.as_deref() {
            is_changed |= remove_subject(&Api::all(client.clone()), binding, &subject).await?;
        }
    }
    for (name, kept) in caches.role_bindings.all_indexed(shared_bindings()) {
        if let Some(binding) = kept.whole.as_deref() {
            let api = Api::namespaced(client.clone(), &name.namespace);
            is_changed |= remove_subject(&api, binding, &subject).await?;
        }
    }
    Ok(is_changed)
}

/// Takes an account out of a binding. A binding without other subjects is deleted. Returns true if the account was in it.
pub async fn remove_subject<K: Binding>(api: &Api<K>, binding: &K, account: &Subject) -> Result<bool, Error> {
    let is_account = |subject: &Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == account.name
            && subject.namespace.as_deref() == Some(SYSTEM_NAMESPACE)
    };
    let (name, uid) = (binding.name_any(), binding.uid());
    let subjects = binding.subjects();
    let others: Vec<&Subject> = subjects.iter().filter(|subject| !is_account(subject)).collect();
    if others.len() == subjects.len() {
        return Ok(false);
    }
    if others.is_empty() {
        write::delete(api, &name, uid.as_deref()).await?;
        return Ok(true);
    }
    // The version protects a subject that was added in between.
    let patch = json!({
        "metadata": {"uid": uid, "resourceVersion": binding.resource_version()},
        "subjects": others,
    });
    let patched = api
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    match write::answered(patched) {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        // A binding that has changed is tried again, so that no account of a deleted sync stays in it.
        Err(error) => Err(error).context(|| format!("take {} out of the binding {name}", account.name)),
    }
}
