//! Writes objects that the server accepts and cannot apply: server-side apply needs the keys of every list element and the
//! type of every field, so it refuses duplicate keys and unknown fields. Such an object is created, or changed by a
//! merge patch that is computed here; the server drops the unknown fields.

use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use writ_controller::{error::status_code, write::replacement};

use super::{managed_fields::is_written_by, read::read};
use crate::work::{
    model::{ApplyFailure, TargetObject},
    plan::rbac::{GRANT_GROUP, RBAC_GROUP},
};

/// The maps of an object in which the server sets no keys: a key that we own there and that left the manifest can go.
const MAPS: [&str; 4] = [
    "/metadata/labels",
    "/metadata/annotations",
    "/data",
    "/binaryData",
];

/// Whether the server could not apply an object that it may accept otherwise. Objects that grant something are not written
/// this way: the gate judged the result of applying them.
pub fn cannot_be_applied(error: &kube::Error, target: &TargetObject) -> bool {
    let grants = matches!(target.kind.resource.group.as_str(), RBAC_GROUP | GRANT_GROUP);
    match error {
        kube::Error::Api(status) => {
            !grants
                && matches!(status.code, 400 | 422 | 500)
                && status.message.contains("failed to create typed ")
        }
        _ => false,
    }
}

/// Creates the object, or merges it into the live one. Writing the same again changes nothing.
pub async fn create_or_merge(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &TargetObject,
    object: &Value,
    manager: &str,
) -> Result<DynamicObject, ApplyFailure> {
    let params = PostParams {
        field_manager: Some(manager.into()),
        ..PostParams::default()
    };
    let created: DynamicObject = serde_json::from_value(object.clone())
        .map_err(|error| ApplyFailure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
    let mut attempts = 0;
    loop {
        let written = match read(client, target).await? {
            None => api.create(&params, &created).await,
            Some(live) => {
                let before = serde_json::to_value(&live).map_err(kube::Error::SerdeError)?;
                let Some(mut patch) = replacement(&before, &merged(&before, object, manager)) else {
                    return Ok(live);
                };
                overlay(
                    &mut patch,
                    &json!({"metadata": {"uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version}}),
                );
                let params = PatchParams::apply(manager);
                api.patch(&target.name, &params, &Patch::Merge(&patch)).await
            }
        };
        attempts += 1;
        match written {
            // Another writer was faster.
            Err(error) if status_code(&error) == Some(409) && attempts < 5 => {}
            written => return Ok(written?),
        }
    }
}

/// The live object with the manifest merged into it: lists as a whole, maps key by key. Keys that this manager wrote into one
/// of [`MAPS`], and that left the manifest, are removed.
fn merged(live: &Value, object: &Value, manager: &str) -> Value {
    let mut wanted = live.clone();
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    for entry in entries.into_iter().flatten() {
        let ours = serde_json::from_value(entry.clone()).is_ok_and(|entry| is_written_by(&entry, manager));
        let Some(fields) = entry.get("fieldsV1").filter(|_| ours) else {
            continue;
        };
        for pointer in MAPS {
            let owned = fields
                .pointer(&pointer.replace('/', "/f:"))
                .and_then(Value::as_object);
            let map = wanted.pointer_mut(pointer).and_then(Value::as_object_mut);
            if let (Some(owned), Some(map)) = (owned, map) {
                let in_manifest = object.pointer(pointer).and_then(Value::as_object);
                remove_omitted(map, owned, in_manifest);
            }
        }
    }
    overlay(&mut wanted, object);
    wanted
}

fn remove_omitted(
    map: &mut Map<String, Value>,
    owned: &Map<String, Value>,
    in_manifest: Option<&Map<String, Value>>,
) {
    map.retain(|key, _| {
        let is_in_manifest = in_manifest.is_some_and(|map| map.contains_key(key));
        is_in_manifest || !owned.contains_key(&format!("f:{key}"))
    });
}

/// Merges a value into another.
fn overlay(into: &mut Value, value: &Value) {
    let (Value::Object(into), Value::Object(value)) = (&mut *into, value) else {
        *into = value.clone();
        return;
    };
    for (key, value) in value {
        match (into.get_mut(key), value) {
            (Some(Value::Array(have)), Value::Array(more))
                if matches!(key.as_str(), "ownerReferences" | "finalizers") =>
            {
                // Other writers add theirs.
                for more in more {
                    let same = |have: &&mut Value| match more.get("uid") {
                        Some(uid) => have.get("uid") == Some(uid),
                        None => **have == *more,
                    };
                    match have.iter_mut().find(same) {
                        Some(have) => overlay(have, more),
                        None => have.push(more.clone()),
                    }
                }
            }
            (Some(have), value) => overlay(have, value),
            (None, value) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_is_merged_into_the_live_object() {
        let object = json!({"metadata": {"labels": {"a": "2"}, "ownerReferences": [{"uid": "me"}]},
            "spec": {"env": [{"name": "x", "value": "1"}, {"name": "x", "value": "2"}], "replicas": 2}});
        let live = json!({"metadata": {"labels": {"a": "1", "old": "1", "theirs": "1"}, "uid": "u",
                "ownerReferences": [{"uid": "me", "name": "n"}, {"uid": "other"}],
                "managedFields": [{"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsV1":
                    {"f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:old": {}}}, "f:spec": {"f:class": {}}}}]},
            "spec": {"env": [{"name": "y"}], "replicas": 5, "class": "default", "theirs": true}, "status": {"ready": 1}});
        let wanted = merged(&live, &object, "me");
        assert_eq!(wanted["metadata"]["labels"], json!({"a": "2", "theirs": "1"}));
        assert_eq!(
            wanted["metadata"]["ownerReferences"],
            json!([{"uid": "me", "name": "n"}, {"uid": "other"}])
        );
        // Fields that the server defaulted stay, whichever manager they count for.
        assert_eq!(
            wanted["spec"],
            json!({"env": [{"name": "x", "value": "1"}, {"name": "x", "value": "2"}], "replicas": 2,
                "class": "default", "theirs": true})
        );
        assert_eq!(wanted["status"], json!({"ready": 1}));
        assert_eq!(
            merged(&wanted, &object, "me"),
            wanted,
            "a second merge changes nothing"
        );
        assert_eq!(merged(&live, &object, "you")["metadata"]["labels"]["old"], "1");
    }
}
