//! Creates objects that a work has never written: that costs the server much less than applying them. The creator of an
//! object owns its fields by a plain write until it is applied for the first time: see [`super::managed_fields`]. A restarted
//! agent compares such objects with their manifests, and does not write all of them again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Api, Client, api::PostParams, core::DynamicObject};
use serde_json::Value;

use super::managed_fields::is_written_by;
use crate::work::model::{ApplyFailure, TargetObject};

/// Whether creating the object has the same result as applying it. In these kinds no list has keys, so applying refuses
/// nothing that creating accepts, such as a key that occurs twice, and the server adds nothing to a list. A `null` means
/// different things to the two.
pub fn is_plain(target: &TargetObject, object: &Value) -> bool {
    fn has_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(list) => list.iter().any(has_null),
            Value::Object(map) => map.values().any(has_null),
            _ => false,
        }
    }
    let resource = &target.kind.resource;
    let plain = match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "ConfigMap") => true,
        // The server moves it to `data`.
        ("", "Secret") => object.get("stringData").is_none(),
        _ => false,
    };
    plain && !has_null(object)
}

/// Whether applying the object would certainly change nothing: the live object has all of it, and this manager wrote nothing
/// else.
pub fn is_as_wanted(live: &DynamicObject, object: &Value, manager: &str) -> bool {
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let mut ours = entries
        .iter()
        .filter(|entry| is_written_by(entry, manager))
        .peekable();
    let is_in_manifest = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| has_fields(object, &fields.0))
    };
    ours.peek().is_some()
        && ours.all(is_in_manifest)
        && live.metadata.deletion_timestamp.is_none()
        && serde_json::to_value(live).is_ok_and(|live| includes(&live, object))
}

/// Whether a value has everything that another has. Lists must be equal, except for owners, which others may add.
fn includes(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let live = live.get(key);
            match (key.as_str(), live, wanted) {
                ("ownerReferences", Some(Value::Array(live)), Value::Array(wanted)) => wanted
                    .iter()
                    .all(|wanted| live.iter().any(|live| includes(live, wanted))),
                _ => live.is_some_and(|live| includes(live, wanted)),
            }
        }),
        _ => live == wanted,
    }
}

/// Whether an object has each of these fields.
fn has_fields(object: &Value, fields: &Value) -> bool {
    let Some(fields) = fields.as_object() else {
        return true;
    };
    fields.iter().all(|(key, below)| match key.as_str() {
        "." => true,
        // The owners themselves are compared by `includes`.
        "f:ownerReferences" => object.get("ownerReferences").is_some(),
        _ => key
            .strip_prefix("f:")
            .and_then(|key| object.get(key))
            .is_some_and(|object| has_fields(object, below)),
    })
}

/// Creates an object. `None` if it has to be applied instead: because it exists, or because the server refuses it, and then
/// the message of a refused apply is the known one.
pub async fn create(
    client: &Client,
    api: &Api<DynamicObject>,
    object: &Value,
    manager: &str,
) -> Result<Option<DynamicObject>, ApplyFailure> {
    let params = PostParams {
        field_manager: Some(manager.into()),
        ..PostParams::default()
    };
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = kube::core::Request::new(api.resource_url())
        .create(&params, body)
        .map_err(kube::Error::BuildRequest)?;
    let (mut parts, body) = request.into_parts();
    // An object with an unknown field is written like others that cannot be applied.
    let strict = format!("{}&fieldValidation=Strict", parts.uri);
    parts.uri = strict
        .parse()
        .map_err(|error| kube::Error::HttpError(http::Error::from(error)))?;
    match client.request(http::Request::from_parts(parts, body)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 409 | 415 | 422) => Ok(None),
        created => Ok(Some(created?)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_that_applying_would_change_is_not_as_wanted() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"},
            "metadata": {"name": "x", "namespace": "n", "labels": {"l": "1"}, "ownerReferences": [{"uid": "me"}]}});
        let fields = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}},
            "f:metadata": {"f:labels": {".": {}, "f:l": {}}, "f:ownerReferences": {".": {}, "k:{}": {}}}});
        let is_unchanged = |change: &dyn Fn(&mut Value)| {
            let mut live = object.clone();
            live["metadata"]["uid"] = json!("1");
            live["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "K", "name": "o", "uid": "other"},
                {"apiVersion": "v1", "kind": "K", "name": "m", "uid": "me"}]);
            live["data"]["theirs"] = json!("3");
            live["metadata"]["managedFields"] = json!([
                {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields},
                {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:theirs": {}}}}]);
            change(&mut live);
            let live: DynamicObject = serde_json::from_value(live).unwrap();
            is_as_wanted(&live, &object, "me")
        };
        assert!(is_unchanged(&|_| {}));
        assert!(is_unchanged(
            &|live| live["metadata"]["managedFields"][0]["operation"] = json!("Apply")
        ));
        let changes: [&dyn Fn(&mut Value); 9] = [
            &|live| live["data"]["a"] = json!("drift"),
            &|live| {
                live["data"].as_object_mut().unwrap().remove("a");
            },
            &|live| live["metadata"]["labels"]["l"] = json!("drift"),
            &|live| live["metadata"]["ownerReferences"] = json!([]),
            // The manifest had more before, or another manager wrote it.
            &|live| live["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:old"] = json!({}),
            &|live| {
                live["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:finalizers"] =
                    json!({"v:\"x\"": {}});
            },
            &|live| live["metadata"]["managedFields"][0]["manager"] = json!("you"),
            &|live| live["metadata"]["managedFields"] = json!([]),
            &|live| live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(!is_unchanged(change), "{number}");
        }
    }
}
