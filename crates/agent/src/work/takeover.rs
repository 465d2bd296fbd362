//! Takes over the fields that OCM's agent wrote. It owns them as `work-agent` by plain updates; as long as it does, the
//! server keeps a field that left the manifest. Ownership goes to this work's own manager, then applying again decides.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};
use writ_api::work::DEFAULT_FIELD_MANAGER;

/// Who owns what after the take-over; `None` if there is nothing to take over.
///
/// Owner references alone are none: our own patches of them carry the same name.
pub fn merged(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let theirs = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(DEFAULT_FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Update")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
            && entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| says_something(&fields.0))
    };
    let taken = entries.iter().find(theirs)?;
    let mut kept: Vec<ManagedFieldsEntry> = entries.iter().filter(|entry| *entry != taken).cloned().collect();
    let ours = kept.iter_mut().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.api_version == taken.api_version
    })?;
    let mut fields = ours.fields_v1.take().map_or(Value::Null, |fields| fields.0);
    unite(&mut fields, taken.fields_v1.as_ref().map(|fields| &fields.0)?);
    ours.fields_v1 = Some(FieldsV1(fields));
    Some(kept)
}

/// Whether the fields are more than owner references.
fn says_something(fields: &Value) -> bool {
    let Some(fields) = fields.as_object() else {
        return false;
    };
    fields
        .iter()
        .any(|(key, value)| match (key.as_str(), value.as_object()) {
            ("f:metadata", Some(metadata)) => metadata.keys().any(|key| key != "f:ownerReferences"),
            _ => true,
        })
}

/// Sets of fields are nested objects: their union has the keys of both.
fn unite(into: &mut Value, other: &Value) {
    let Value::Object(other) = other else { return };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    if let Value::Object(into) = into {
        for (key, value) in other {
            unite(
                into.entry(key.clone())
                    .or_insert_with(|| Value::Object(Map::new())),
                value,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(value: Value) -> Vec<ManagedFieldsEntry> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_ocms_agent_owns_becomes_ours() {
        let before = entries(json!([
            {"manager": "work-agent-1", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:a": {}}}},
            {"manager": "work-agent", "operation": "Update", "apiVersion": "v1",
             "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:old": {}}, "f:metadata": {"f:ownerReferences": {}}}},
            {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:b": {}}}},
        ]));
        let after = entries(json!([
            {"manager": "work-agent-1", "operation": "Apply", "apiVersion": "v1",
             "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:old": {}}, "f:metadata": {"f:ownerReferences": {}}}},
            {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:b": {}}}},
        ]));
        assert_eq!(merged(&before, "work-agent-1"), Some(after.clone()));
        assert_eq!(merged(&after, "work-agent-1"), None);
    }

    #[test]
    fn owner_references_a_status_and_applied_fields_are_left_alone() {
        let ours =
            json!({"manager": "work-agent-1", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {}});
        for entry in [
            json!({"manager": "work-agent", "operation": "Update", "apiVersion": "v1",
                "fieldsV1": {"f:metadata": {"f:ownerReferences": {"k:{}": {}}}}}),
            json!({"manager": "work-agent", "operation": "Update", "apiVersion": "v1", "subresource": "status",
                "fieldsV1": {"f:status": {}}}),
            json!({"manager": "work-agent", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {}}}),
        ] {
            assert_eq!(
                merged(&entries(json!([ours, entry])), "work-agent-1"),
                None,
                "{entry}"
            );
        }
    }
}
