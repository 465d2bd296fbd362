//! Deletes and recreates an object with an immutable field that has to change, and only if the new one can be created.

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::Value;

use super::read::WITHIN;
use crate::{
    RecreateLock,
    work::model::{ApplyFailure, TargetObject},
};

/// Deletes and recreates it back to back. It is only applied if no immutable field differs.
pub async fn recreate(
    api: &Api<DynamicObject>,
    target: &TargetObject,
    params: &PatchParams,
    object: &Value,
    recreate_lock: &RecreateLock,
) -> Result<DynamicObject, ApplyFailure> {
    let patch = Patch::Apply(object);
    let apply = || api.patch(&target.name, params, &patch);
    let live = api.get(&target.name).await?;
    let is_immutable = live.data.get("immutable") == Some(&Value::Bool(true));
    let has_other_type = target
        .object
        .get("type")
        .is_some_and(|wanted| live.data.get("type") != Some(wanted));
    let has_other_role = target.object.get("roleRef").is_some_and(|wanted| {
        let live = live.data.get("roleRef");
        ["kind", "name"]
            .iter()
            .any(|field| live.and_then(|role| role.get(field)) != wanted.get(field))
    });
    if !is_immutable && !has_other_type && !has_other_role {
        // It was refused for another reason, which the server names again, or it was recreated meanwhile.
        return Ok(apply().await?);
    }
    check_can_be_created(api, object).await?;
    let exact = DeleteParams::background().preconditions(Preconditions {
        uid: live.metadata.uid,
        resource_version: live.metadata.resource_version,
    });
    let recreated = async {
        // The controller of NamespaceGrants creates RoleBindings where none exists.
        let _guard = if target.kind.resource.kind == "RoleBinding" {
            Some(recreate_lock.write().await)
        } else {
            None
        };
        api.delete(&target.name, &exact).await?;
        apply().await
    };
    let late = |_| kube::Error::Service(format!("no answer within {} s", WITHIN.as_secs()).into());
    Ok(tokio::time::timeout(WITHIN, recreated).await.map_err(late)??)
}

/// Asks the server by a dry run, under another name, whether it would create the object: nothing is deleted for an object
/// that it would refuse.
async fn check_can_be_created(api: &Api<DynamicObject>, object: &Value) -> Result<(), ApplyFailure> {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("name");
        metadata.insert("generateName".into(), "writ-trial-".into());
    }
    let trial: DynamicObject = serde_json::from_value(object)
        .map_err(|error| ApplyFailure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&params, &trial).await {
        // A webhook that supports no dry run has not judged the object.
        Err(kube::Error::Api(status)) if status.code == 400 && status.message.contains("dry run") => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
