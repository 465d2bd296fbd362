//! Pure: takes over fields that are owned by a plain write, as those that OCM's agent wrote as `work-agent`, or that a work
//! created. While they are, the server keeps a field that left the manifest. They are moved to what the work's
//! own manager applied; applying again then removes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};
use writ_api::work::DEFAULT_FIELD_MANAGER;

/// The managedFields after the take-over, once this manager has applied; `None` if there is nothing to take over.
///
/// Owner references alone are not taken over: our own patches of them carry the name of OCM's agent. Nor is an entry that
/// is applied completely now: that would cost requests and change nothing.
pub fn merged(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let applied = entries.iter().find(|entry| is_applied(entry, manager))?;
    let is_covered = |entry: &ManagedFieldsEntry| {
        fields(applied).is_some_and(|all| fields(entry).is_none_or(|some| covers(all, some)))
    };
    let taken = entries.iter().find(|entry| {
        entry.api_version == applied.api_version
            && ((is_created(entry, DEFAULT_FIELD_MANAGER) && fields(entry).is_some_and(has_more_than_owners))
                || (is_created(entry, manager) && !is_covered(entry)))
    })?;
    Some(united(entries, taken, manager))
}

/// The managedFields once everything that this manager created counts as applied; `None` if it created nothing.
pub fn as_applied(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let created = entries.iter().find(|entry| is_created(entry, manager))?;
    Some(united(entries, created, manager))
}

/// The fields of an object that a manager has written, by applying or creating it.
pub fn written_by<'a>(entries: &'a [ManagedFieldsEntry], manager: &str) -> Option<&'a ManagedFieldsEntry> {
    entries.iter().find(|entry| is_written_by(entry, manager))
}

/// Whether an entry is of what a manager has applied or created.
pub fn is_written_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    is_applied(entry, manager) || is_created(entry, manager)
}

fn is_applied(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
}

fn is_created(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

fn fields(entry: &ManagedFieldsEntry) -> Option<&Value> {
    entry.fields_v1.as_ref().map(|fields| &fields.0)
}

/// The entries, with one of them merged into what the manager applied.
fn united(
    entries: &[ManagedFieldsEntry],
    taken: &ManagedFieldsEntry,
    manager: &str,
) -> Vec<ManagedFieldsEntry> {
    let mut kept: Vec<ManagedFieldsEntry> = entries.iter().filter(|entry| *entry != taken).cloned().collect();
    let ours = kept
        .iter_mut()
        .find(|entry| is_applied(entry, manager) && entry.api_version == taken.api_version);
    if let Some(ours) = ours {
        let mut all = ours.fields_v1.take().map_or(Value::Null, |fields| fields.0);
        unite(&mut all, fields(taken).unwrap_or(&Value::Null));
        ours.fields_v1 = Some(FieldsV1(all));
    } else {
        kept.push(ManagedFieldsEntry {
            manager: Some(manager.into()),
            operation: Some("Apply".into()),
            ..taken.clone()
        });
    }
    kept
}

/// Whether a set of fields includes all of another. The existence of a map (`.`) is owned by its creator, and not by a
/// manager that applies its entries.
fn covers(all: &Value, some: &Value) -> bool {
    let Some(some) = some.as_object() else { return true };
    some.iter()
        .filter(|(key, _)| *key != ".")
        .all(|(key, value)| all.get(key).is_some_and(|all| covers(all, value)))
}

/// Whether the fields are more than owner references.
fn has_more_than_owners(fields: &Value) -> bool {
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
    fn fields_of_ocms_agent_are_taken_over() {
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
    fn created_fields_are_taken_over_when_the_manifest_omits_some() {
        let created = json!({"manager": "work-agent-1", "operation": "Update", "apiVersion": "v1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:ownerReferences": {".": {}, "k:{}": {}}}}});
        let applied = |data: Value| {
            json!({"manager": "work-agent-1", "operation": "Apply", "apiVersion": "v1",
                "fieldsV1": {"f:data": data, "f:metadata": {"f:ownerReferences": {"k:{}": {}}}}})
        };
        let all = applied(json!({"f:a": {}, "f:b": {}, "f:c": {}}));
        let less = applied(json!({"f:a": {}}));
        assert_eq!(merged(&entries(json!([created])), "work-agent-1"), None);
        assert_eq!(merged(&entries(json!([created, all])), "work-agent-1"), None);
        let after = merged(&entries(json!([created, less])), "work-agent-1").unwrap();
        assert_eq!(after.len(), 1);
        assert_eq!(
            after[0].fields_v1.as_ref().unwrap().0,
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:ownerReferences": {".": {}, "k:{}": {}}}})
        );
        // Other managers, also of a similar name, keep their fields.
        assert_eq!(merged(&entries(json!([created, less])), "work-agent"), None);
        // A work that goes gives up what it created: it counts as applied first.
        let mut alone = created.clone();
        alone["operation"] = json!("Apply");
        assert_eq!(
            as_applied(&entries(json!([created])), "work-agent-1"),
            Some(entries(json!([alone])))
        );
        assert_eq!(
            as_applied(&entries(json!([created, less])), "work-agent-1"),
            Some(after)
        );
        assert_eq!(as_applied(&entries(json!([less])), "work-agent-1"), None);
        assert_eq!(as_applied(&entries(json!([created])), "work-agent-2"), None);
        assert!(written_by(&entries(json!([created])), "work-agent-1").is_some());
        assert!(written_by(&entries(json!([less])), "work-agent-1").is_some());
        assert!(written_by(&entries(json!([created])), "work-agent-2").is_none());
    }

    #[test]
    fn owner_references_status_and_applied_fields_are_not_taken_over() {
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
