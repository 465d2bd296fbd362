//! Deletes objects that a work applied: only ours, never somebody else's, never twice.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use writ_api::work::AppliedResource;
use writ_runtime::{
    Error,
    error::{Context as _, status_code},
};

use super::{
    apply::{Owner, api, owners},
    mapper::{Kind, Mapper},
};

/// What became of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It is not ours any more: deleted, orphaned, or left to another work.
    Yes,
    /// It is on its way out; an event will tell.
    Pending,
}

/// Deletes one object, unless somebody else still needs it.
pub async fn delete(
    client: &Client,
    mapper: &Mapper,
    resource: &AppliedResource,
    owner: &Owner,
) -> Result<Gone, Error> {
    let Some(kind) = mapper
        .find_resource(&resource.group, &resource.version, &resource.resource)
        .await?
    else {
        // Nothing of a kind that is not served can exist.
        return Ok(Gone::Yes);
    };
    for _ in 0..5 {
        match attempt(client, &kind, resource, owner).await {
            Err(error) if error.is_code(409) => {}
            other => return other,
        }
    }
    Ok(Gone::Pending)
}

async fn attempt(
    client: &Client,
    kind: &Kind,
    resource: &AppliedResource,
    owner: &Owner,
) -> Result<Gone, Error> {
    let what = || {
        format!(
            "delete {} {}/{}",
            kind.resource.kind, resource.namespace, resource.name
        )
    };
    let api = api(client, kind, &resource.namespace);
    let Some(live) = api.get_metadata_opt(&resource.name).await.context(what)? else {
        return Ok(Gone::Yes);
    };
    let uid = live.metadata.uid.clone().unwrap_or_default();
    let references = live.metadata.owner_references.unwrap_or_default();
    let ours = references.iter().any(|reference| reference.uid == owner.uid);
    if !ours || (!resource.uid.is_empty() && resource.uid != uid) {
        return Ok(Gone::Yes);
    }
    let shared = references.iter().any(|reference| {
        reference.uid != owner.uid
            && reference.kind == "AppliedManifestWork"
            && reference
                .api_version
                .starts_with("work.open-cluster-management.io/")
    });
    if shared {
        release(
            &api,
            kind,
            resource,
            live.metadata.managed_fields.as_deref(),
            owner,
        )
        .await
        .context(what)?;
        let Some(live) = api.get_metadata_opt(&resource.name).await.context(what)? else {
            return Ok(Gone::Yes);
        };
        if let Some(kept) = owners(live.metadata.owner_references.as_deref(), owner, false) {
            let patch = json!({"metadata": {
                "uid": uid,
                "resourceVersion": live.metadata.resource_version,
                "ownerReferences": kept,
            }});
            let params = PatchParams::apply(writ_api::work::DEFAULT_FIELD_MANAGER);
            api.patch_metadata(&resource.name, &params, &Patch::Merge(&patch))
                .await
                .context(what)?;
        }
        return Ok(Gone::Yes);
    }
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Gone::Pending);
    }
    let exact = DeleteParams::background().preconditions(Preconditions {
        uid: Some(uid),
        resource_version: None,
    });
    match api.delete(&resource.name, &exact).await {
        Ok(answer) => Ok(match answer.right() {
            Some(_) => Gone::Yes,
            None => Gone::Pending,
        }),
        Err(error) if status_code(&error) == Some(404) => Ok(Gone::Yes),
        Err(error) => Err(error).context(what),
    }
}

/// Gives up the fields of this work's own field manager, so that the works that stay decide about them.
async fn release(
    api: &kube::Api<DynamicObject>,
    kind: &Kind,
    resource: &AppliedResource,
    managed: Option<&[ManagedFieldsEntry]>,
    owner: &Owner,
) -> Result<(), kube::Error> {
    let name = owner.manager();
    let Some(entry) = managed
        .unwrap_or_default()
        .iter()
        .find(|entry| entry.manager.as_deref() == Some(&name) && entry.operation.as_deref() == Some("Apply"))
    else {
        return Ok(());
    };
    // Applying nothing but the identity removes the manager and what only it owned.
    let mut nothing = json!({
        "apiVersion": entry.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": resource.name},
    });
    if kind.namespaced
        && let Some(metadata) = nothing.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".into(), resource.namespace.clone().into());
    }
    let params = PatchParams::apply(&name).force();
    api.patch_metadata(&resource.name, &params, &Patch::Apply(&nothing))
        .await?;
    Ok(())
}
