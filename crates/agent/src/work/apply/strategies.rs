//! Writes one object by its update strategy, with as few requests as possible.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use writ_api::work::{
    CONFIG_SPEC_HASH_ANNOTATION, IgnoreFieldCondition, ServerSideApply, UpdateStrategyType,
};
use writ_controller::error::status_code;

use super::{
    conflicts::check_not_foreign,
    create,
    ignored_fields::{applied_by, remove_ignored, replace_ignored},
    managed_fields,
    merge_fallback::{cannot_be_applied, create_or_merge},
    read::read,
    recreate::recreate,
};
use crate::owner::{Owner, hex_sha256};
use crate::{
    RecreateLock,
    work::model::{ApplyFailure, TargetObject},
};

/// What is known of an object before it is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The lock under which it is recreated where an immutable field has to change; `None` if it may not be deleted.
    pub may_recreate: Option<&'a RecreateLock>,
    /// What the work did with it before.
    pub history: History,
}

/// What a work did with an object before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Nothing: most likely it does not exist.
    NeverWritten,
    /// It was written by an agent process that has ended since: most likely it is as wanted.
    WrittenBefore,
    /// It was written by this process, and has to change.
    Changed,
}

/// Writes the object. Returns it as the server has it now; `None` if it is only read and does not exist.
pub async fn write(
    client: &Client,
    target: &TargetObject,
    owner: &Owner,
    context: WriteContext<'_>,
) -> Result<Option<DynamicObject>, ApplyFailure> {
    let api = target.kind.api(client, &target.namespace);
    let written = match target.config.strategy.type_ {
        // An object that was written before no longer belongs to the work.
        UpdateStrategyType::ReadOnly => match read(client, target).await? {
            Some(live) => live,
            None => return Ok(None),
        },
        UpdateStrategyType::Update => update(client, &api, target, owner, context).await?,
        UpdateStrategyType::CreateOnly => create_only(client, &api, target, owner).await?,
        UpdateStrategyType::ServerSideApply => {
            let options = target
                .config
                .strategy
                .server_side_apply
                .clone()
                .unwrap_or_default();
            server_side_apply(client, &api, target, &options).await?
        }
    };
    set_owner(&api, target, owner, written).await.map(Some)
}

/// The server's own merge enforces everything in the manifest: fields of other managers stay, fields that left the manifest
/// are removed, and an unchanged object is not written.
async fn update(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &TargetObject,
    owner: &Owner,
    context: WriteContext<'_>,
) -> Result<DynamicObject, ApplyFailure> {
    let mut object = target.object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    let removals = take_removals(&mut object);
    if target.owned
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("ownerReferences".into(), json!([owner.reference()]));
    }
    let manager = owner.manager();
    if removals.is_empty() && create::is_plain(target, &object) {
        match context.history {
            History::NeverWritten => {
                if let Some(created) = create::create(client, api, &object, &manager).await? {
                    return Ok(created);
                }
                // It was created since it was checked for conflicts.
                check_not_foreign(client, target, &manager, None).await?;
            }
            History::WrittenBefore => {
                let live = read(client, target).await?;
                if let Some(live) = live.filter(|live| create::is_as_wanted(live, &object, &manager)) {
                    return Ok(live);
                }
            }
            History::Changed => {}
        }
    }
    let params = PatchParams::apply(&manager).force();
    let applied = match (
        api.patch(&target.name, &params, &Patch::Apply(&object)).await,
        context.may_recreate,
    ) {
        (Err(error), _) if cannot_be_applied(&error, target) => {
            create_or_merge(client, api, target, &object, &manager).await?
        }
        (Err(error), Some(lock))
            if status_code(&error) == Some(422)
                && matches!(
                    (
                        target.kind.resource.group.as_str(),
                        target.kind.resource.kind.as_str()
                    ),
                    ("", "Secret") | ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
                ) =>
        {
            // The type of a Secret, the data of an immutable one, and the role of a binding cannot be changed.
            let recreated = recreate(api, target, &params, &object, lock).await?;
            take_over(api, target, &params, &object, recreated).await?
        }
        (applied, _) => take_over(api, target, &params, &object, applied?).await?,
    };
    if removals.is_empty() {
        return Ok(applied);
    }
    let live = serde_json::to_value(&applied).unwrap_or_default();
    match removal_patch(&live, &removals) {
        Some(patch) => Ok(api
            .patch(&target.name, &PatchParams::apply(&manager), &Patch::Merge(patch))
            .await?),
        None => Ok(applied),
    }
}

/// Takes over the fields that OCM's agent wrote before; those that the manifest omits are removed.
async fn take_over(
    api: &Api<DynamicObject>,
    target: &TargetObject,
    params: &PatchParams,
    object: &Value,
    applied: DynamicObject,
) -> Result<DynamicObject, ApplyFailure> {
    let manager = params.field_manager.as_deref().unwrap_or_default();
    let entries = applied.metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(merged) = managed_fields::merged(entries, manager) else {
        return Ok(applied);
    };
    let patch = json!({"metadata": {
        "uid": applied.metadata.uid,
        "resourceVersion": applied.metadata.resource_version,
        "managedFields": merged,
    }});
    let quiet = PatchParams::apply(manager);
    api.patch_metadata(&target.name, &quiet, &Patch::Merge(&patch))
        .await?;
    Ok(api.patch(&target.name, params, &Patch::Apply(object)).await?)
}

async fn create_only(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &TargetObject,
    owner: &Owner,
) -> Result<DynamicObject, ApplyFailure> {
    if let Some(live) = read(client, target).await? {
        return Ok(live);
    }
    let mut object = target.object.clone();
    let _ = take_removals(&mut object);
    if target.owned
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("ownerReferences".into(), json!([owner.reference()]));
    }
    let object: DynamicObject = serde_json::from_value(object)
        .map_err(|error| ApplyFailure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
    let params = PostParams {
        field_manager: Some(owner.manager()),
        ..PostParams::default()
    };
    match api.create(&params, &object).await {
        // Another writer was faster.
        Err(error) if status_code(&error) == Some(409) => Ok(api.get(&target.name).await?),
        other => Ok(other?),
    }
}

async fn server_side_apply(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &TargetObject,
    options: &ServerSideApply,
) -> Result<DynamicObject, ApplyFailure> {
    let mut params = PatchParams::apply(&options.field_manager);
    params.force = options.force;
    let mut attempts = 0;
    loop {
        let mut object = target.object.clone();
        let _ = take_removals(&mut object);
        if !options.ignore_fields.is_empty() {
            object = without_ignored(client, target, options, object).await?;
        }
        attempts += 1;
        match api.patch(&target.name, &params, &Patch::Apply(&object)).await {
            Err(kube::Error::Api(status))
                if status.code == 409 && status.message.starts_with("Apply failed with ") =>
            {
                return Err(ApplyFailure::Conflict(status.message.clone()));
            }
            // It was changed since it was read.
            Err(error) if status_code(&error) == Some(409) && attempts < 5 => {}
            other => return Ok(other?),
        }
    }
}

/// The manifest as it is applied, if some of its fields are ignored once the object exists.
async fn without_ignored(
    client: &Client,
    target: &TargetObject,
    options: &ServerSideApply,
    mut object: Value,
) -> Result<Value, ApplyFailure> {
    // A change of a field that is always ignored does not count as a change of the manifest.
    let mut counted = object.clone();
    remove_ignored(
        &mut counted,
        &options.ignore_fields,
        IgnoreFieldCondition::OnSpokePresent,
    )
    .map_err(ApplyFailure::IgnoreFields)?;
    let hash = hex_sha256(counted.to_string().as_bytes());
    let live = read(client, target).await?;
    if let Some(live) = &live {
        let annotations = live.metadata.annotations.as_ref();
        let applied = annotations.and_then(|annotations| annotations.get(CONFIG_SPEC_HASH_ANNOTATION));
        let conditions: &[_] = if applied == Some(&hash) {
            &[
                IgnoreFieldCondition::OnSpokePresent,
                IgnoreFieldCondition::OnSpokeChange,
            ]
        } else {
            &[IgnoreFieldCondition::OnSpokePresent]
        };
        let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
        let owned = applied_by(entries, &options.field_manager);
        let live = serde_json::to_value(live).map_err(kube::Error::SerdeError)?;
        object = replace_ignored(&object, &live, owned, &options.ignore_fields, conditions)
            .map_err(ApplyFailure::IgnoreFields)?;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(CONFIG_SPEC_HASH_ANNOTATION.into(), hash.into());
        }
        // Only over the version that was read: a field that is changed in this moment belongs to its writer.
        if let Some(version) = live.and_then(|live| live.metadata.resource_version) {
            metadata.insert("resourceVersion".into(), version.into());
        }
    }
    Ok(object)
}

/// Adds our owner reference to the object, or removes it.
async fn set_owner(
    api: &Api<DynamicObject>,
    target: &TargetObject,
    owner: &Owner,
    mut live: DynamicObject,
) -> Result<DynamicObject, ApplyFailure> {
    for attempt in 0..5 {
        let Some(owners) = owners(live.metadata.owner_references.as_deref(), owner, target.owned) else {
            return Ok(live);
        };
        let patch = json!({"metadata": {
            "uid": live.metadata.uid,
            "resourceVersion": live.metadata.resource_version,
            "ownerReferences": owners,
        }});
        let params = PatchParams::apply(writ_api::work::DEFAULT_FIELD_MANAGER);
        match api.patch(&target.name, &params, &Patch::Merge(&patch)).await {
            Err(error) if status_code(&error) == Some(409) && attempt < 4 => {
                live = api.get(&target.name).await?;
            }
            other => return Ok(other?),
        }
    }
    Ok(live)
}

/// The owner references of an object with or without this owner; `None` if they are so already.
pub fn owners(
    current: Option<&[OwnerReference]>,
    owner: &Owner,
    is_owned: bool,
) -> Option<Vec<OwnerReference>> {
    let current = current.unwrap_or_default();
    let has_owner = current.iter().any(|reference| reference.uid == owner.uid);
    if has_owner == is_owned {
        return None;
    }
    let mut wanted = current.to_vec();
    if is_owned {
        wanted.push(owner.reference());
    } else {
        wanted.retain(|reference| reference.uid != owner.uid);
    }
    Some(wanted)
}

/// Takes the label and annotation keys out of a manifest that it asks to remove, by a `-` at their end.
fn take_removals(object: &mut Value) -> Vec<(&'static str, String)> {
    let mut removals = Vec::new();
    for field in ["labels", "annotations"] {
        let Some(map) = object
            .get_mut("metadata")
            .and_then(|metadata| metadata.get_mut(field))
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        let marked: Vec<String> = map.keys().filter(|key| key.ends_with('-')).cloned().collect();
        for key in marked {
            map.remove(&key);
            removals.push((field, key.trim_end_matches('-').to_owned()));
        }
    }
    removals
}

/// A merge patch that removes those keys where the live object still has them.
fn removal_patch(live: &Value, removals: &[(&'static str, String)]) -> Option<Value> {
    let mut metadata = Map::new();
    for (field, key) in removals {
        let has = live
            .get("metadata")
            .and_then(|metadata| metadata.get(*field))
            .is_some_and(|map| map.get(key).is_some());
        if has {
            let entry = metadata
                .entry((*field).to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = entry {
                map.insert(key.clone(), Value::Null);
            }
        }
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}
