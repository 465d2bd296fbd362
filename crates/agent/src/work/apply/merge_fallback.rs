//! Writes what Kubernetes takes and cannot apply: applying knows every element of a list by its keys, and every field by
//! its type, so it refuses a name that is there twice and a field that nobody knows. Such an object is created, or changed
//! by a patch that is made here; the server drops what it does not know.

use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Map, Value, json};
use writ_controller::{error::status_code, write::replacement};

use super::{apply::Failure, plan::Target, read::read, takeover::is_written_by};

/// The maps of an object whose keys nobody but people choose: what leaves them was not put there by the server.
const MAPS: [&str; 4] = [
    "/metadata/labels",
    "/metadata/annotations",
    "/data",
    "/binaryData",
];

/// Whether the server could not apply an object that it may take otherwise. What grants something is not written so: the
/// gate judged what applying makes of it.
pub fn cannot_be_applied(error: &kube::Error, target: &Target) -> bool {
    let grants = matches!(
        target.kind.resource.group.as_str(),
        "rbac.authorization.k8s.io" | "writ.dev"
    );
    match error {
        kube::Error::Api(status) => {
            !grants
                && matches!(status.code, 400 | 422 | 500)
                && status.message.contains("failed to create typed ")
        }
        _ => false,
    }
}

/// Creates the object, or writes what it says over what is there. Writing the same again changes nothing.
pub async fn write(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &Target,
    object: &Value,
    manager: &str,
) -> Result<DynamicObject, Failure> {
    let params = PostParams {
        field_manager: Some(manager.into()),
        ..PostParams::default()
    };
    let created: DynamicObject = serde_json::from_value(object.clone())
        .map_err(|error| Failure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
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
            // Somebody else was faster.
            Err(error) if status_code(&error) == Some(409) && attempts < 5 => {}
            written => return Ok(written?),
        }
    }
}

/// What is there, with all that the manifest says: its lists as a whole, its maps key by key. What this manager wrote into a
/// map of texts, and the manifest no longer says, goes.
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
                let said = object.pointer(pointer).and_then(Value::as_object);
                drop_unsaid(map, owned, said);
            }
        }
    }
    overlay(&mut wanted, object);
    wanted
}

fn drop_unsaid(map: &mut Map<String, Value>, owned: &Map<String, Value>, said: Option<&Map<String, Value>>) {
    map.retain(|key, _| {
        !owned.contains_key(&format!("f:{key}")) || said.is_some_and(|said| said.contains_key(key))
    });
}

/// Puts a value over another.
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
                // Others put theirs there too.
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
    fn what_the_manifest_says_is_put_over_what_is_there() {
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
        // What the server added stays, whoever it counts it for.
        assert_eq!(
            wanted["spec"],
            json!({"env": [{"name": "x", "value": "1"}, {"name": "x", "value": "2"}], "replicas": 2,
                "class": "default", "theirs": true})
        );
        assert_eq!(wanted["status"], json!({"ready": 1}));
        assert_eq!(merged(&wanted, &object, "me"), wanted, "twice is once");
        assert_eq!(merged(&live, &object, "you")["metadata"]["labels"]["old"], "1");
    }
}
