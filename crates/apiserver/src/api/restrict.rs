//! Which part of an object a write through one of its doors may change.

use serde_json::Value;

use super::signing::{self, CSR};
use super::{Call, meta};
use crate::registry::Version;
use crate::schema::Cause;

/// Whether PUT makes an object that is not there.
pub(super) fn creates_on_update(call: &Call) -> bool {
    matches!(
        &*call.resource.table,
        "endpoints" | "events" | "limitranges" | "services" | "leases.coordination.k8s.io"
    ) || call.resource.group == "rbac.authorization.k8s.io"
}

/// Whether a write without a resourceVersion is accepted.
pub(super) fn unconditional(call: &Call) -> bool {
    call.resource.builtin.is_some_and(|kind| {
        !matches!(
            kind.kind,
            "CustomResourceDefinition" | "Lease" | "PodDisruptionBudget"
        ) && kind.group != "admissionregistration.k8s.io"
    })
}

/// A namespace lives until its own finalizers are gone too.
pub(super) fn lives_on(call: &Call, value: &Value) -> bool {
    &*call.resource.table == "namespaces" && has_content(value)
}

/// Whether somebody still looks after what is in a namespace.
pub(super) fn has_content(namespace: &Value) -> bool {
    let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn put(value: &mut Value, name: &str, field: Option<&Value>) {
    if let Some(map) = value.as_object_mut() {
        match field {
            Some(field) => drop(map.insert(name.to_owned(), field.clone())),
            None => drop(map.remove(name)),
        }
    }
}

/// The metadata that a write to the status leaves as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    Field(&'static str),
    All,
}

/// Each kind has its own rule. Through the status of a custom resource nothing else changes, not even labels.
pub(super) fn kept_metadata(call: &Call) -> Kept {
    match call.resource.builtin.map(|kind| kind.kind) {
        None | Some("ValidatingAdmissionPolicy") => Kept::All,
        Some("Deployment") => Kept::Field("labels"),
        Some("Pod") => Kept::Field("ownerReferences"),
        Some(_) => Kept::Nothing,
    }
}

/// Restores what this door may not change.
pub(super) fn keep(call: &Call, version: &Version, old: &Value, new: &mut Value) {
    let table = &*call.resource.table;
    match call.target.subresource.as_str() {
        "" | "scale" => {
            if version.status {
                put(new, "status", old.get("status"));
            }
            if table == "namespaces" {
                let finalizers = old.pointer("/spec/finalizers").cloned();
                keep_in(new, "spec", "finalizers", finalizers);
            }
            if table == CSR {
                put(new, "spec", old.get("spec"));
            }
            if table == "customresourcedefinitions.apiextensions.k8s.io" {
                let before = new
                    .pointer("/status/storedVersions")
                    .and_then(Value::as_array)
                    .cloned();
                let stored = storage_versions(new, &before.unwrap_or_default());
                keep_in(new, "status", "storedVersions", Some(stored));
            }
        }
        "finalize" => {
            put(new, "status", old.get("status"));
        }
        "approval" => {
            let conditions = new.pointer("/status/conditions").cloned();
            keep_all_but(new, old, &["metadata"]);
            keep_in(new, "status", "conditions", conditions);
        }
        _ => {
            let kept = kept_metadata(call);
            if kept == Kept::All {
                let managed = new.pointer("/metadata/managedFields").cloned();
                let rv = new.pointer("/metadata/resourceVersion").cloned();
                keep_all_but(new, old, &["status"]);
                meta::edit(new, |metadata| {
                    for (name, value) in [("managedFields", managed), ("resourceVersion", rv)] {
                        match value {
                            Some(value) => drop(metadata.insert(name.into(), value)),
                            None => drop(metadata.remove(name)),
                        }
                    }
                });
            } else {
                keep_all_but(new, old, &["status", "metadata"]);
                if table == CSR {
                    signing::keep_verdicts(old, new);
                }
                if let Kept::Field(name) = kept {
                    let field = old.get("metadata").and_then(|metadata| metadata.get(name));
                    keep_in(new, "metadata", name, field.cloned());
                }
            }
        }
    }
}

/// The versions in which custom resources may be stored: those of before, and the one that is used now.
pub(super) fn storage_versions(crd: &Value, before: &[Value]) -> Value {
    let mut all = before.to_vec();
    for version in crd
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if version.get("storage") == Some(&Value::Bool(true))
            && let Some(name) = version.get("name")
            && !all.contains(name)
        {
            all.push(name.clone());
        }
    }
    if all.is_empty() {
        Value::Null
    } else {
        Value::Array(all)
    }
}

fn keep_in(new: &mut Value, outer: &str, inner: &str, value: Option<Value>) {
    let Some(map) = new.as_object_mut() else { return };
    let slot = map
        .entry(outer)
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Some(slot) = slot.as_object_mut() {
        match value {
            Some(value) => drop(slot.insert(inner.to_owned(), value)),
            None => drop(slot.remove(inner)),
        }
    }
}

fn keep_all_but(new: &mut Value, old: &Value, except: &[&str]) {
    let Some(map) = new.as_object_mut() else { return };
    map.retain(|name, _| except.contains(&name.as_str()));
    for (name, value) in old.as_object().into_iter().flatten() {
        if !except.contains(&name.as_str()) {
            map.insert(name.clone(), value.clone());
        }
    }
}

/// What a namespace says of itself by its status must be true.
pub(super) fn phase_problem(call: &Call, namespace: &Value) -> Option<Cause> {
    if &*call.resource.table != "namespaces" || call.target.subresource != "status" {
        return None;
    }
    let phase = namespace.pointer("/status/phase").and_then(Value::as_str);
    let phase = phase.unwrap_or_default();
    let (wanted, detail) = if meta::text(namespace, "deletionTimestamp").is_empty() {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    } else {
        (
            "Terminating",
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )
    };
    (phase != wanted).then(|| Cause::invalid("status.Phase", &phase.into(), detail))
}
