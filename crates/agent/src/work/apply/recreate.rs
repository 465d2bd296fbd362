//! Makes an object anew that cannot be changed into what is wanted, and only if it can be made.

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::Value;

use super::{apply::Failure, plan::Target, read::WITHIN};
use crate::Replacements;

/// Deletes and makes it back to back. If nothing in it keeps it from being changed, it is applied as it is.
pub async fn replace(
    api: &Api<DynamicObject>,
    target: &Target,
    params: &PatchParams,
    object: &Value,
    replacements: &Replacements,
) -> Result<DynamicObject, Failure> {
    let patch = Patch::Apply(object);
    let apply = || api.patch(&target.name, params, &patch);
    let live = api.get(&target.name).await?;
    let immutable = live.data.get("immutable") == Some(&Value::Bool(true));
    let other_type = target
        .object
        .get("type")
        .is_some_and(|wanted| live.data.get("type") != Some(wanted));
    let other_role = target.object.get("roleRef").is_some_and(|wanted| {
        let live = live.data.get("roleRef");
        ["kind", "name"]
            .iter()
            .any(|field| live.and_then(|role| role.get(field)) != wanted.get(field))
    });
    if !immutable && !other_type && !other_role {
        // There is another reason, which it tells again, or somebody has made it anew meanwhile.
        return Ok(apply().await?);
    }
    would_be_made(api, object).await?;
    let exact = DeleteParams::background().preconditions(Preconditions {
        uid: live.metadata.uid,
        resource_version: live.metadata.resource_version,
    });
    let made = async {
        let shared = target.kind.resource.kind == "RoleBinding";
        let _alone = if shared {
            Some(replacements.write().await)
        } else {
            None
        };
        api.delete(&target.name, &exact).await?;
        apply().await
    };
    let late = |_| kube::Error::Service(format!("no answer within {} s", WITHIN.as_secs()).into());
    Ok(tokio::time::timeout(WITHIN, made).await.map_err(late)??)
}

/// Nothing is deleted for something that cannot be made: the server is asked first, under another name.
async fn would_be_made(api: &Api<DynamicObject>, object: &Value) -> Result<(), Failure> {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("name");
        metadata.insert("generateName".into(), "writ-trial-".into());
    }
    let trial: DynamicObject = serde_json::from_value(object)
        .map_err(|error| Failure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&params, &trial).await {
        // A webhook that cannot try says nothing about the object.
        Err(kube::Error::Api(status)) if status.code == 400 && status.message.contains("dry run") => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
