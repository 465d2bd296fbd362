//! How the pods of a job are known: by labels with its uid, and with its name for people.

use serde_json::{Value, json};

/// The labels with the uid and with the name, each in its older spelling, too.
pub(super) const UIDS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
pub(super) const NAMES: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

/// Marks the pods of a new job and selects them, unless somebody does that by hand.
pub(super) fn mark_pods(job: &mut Value) {
    if job.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let text = |pointer: &str| job.pointer(pointer).cloned().unwrap_or_default();
    let (uid, name) = (text("/metadata/uid"), text("/metadata/name"));
    let values = UIDS
        .map(|label| (label, &uid))
        .into_iter()
        .chain(NAMES.map(|label| (label, &name)));
    for (label, value) in values {
        fill(job, &["spec", "template", "metadata", "labels", label], value);
    }
    fill(job, &["spec", "selector", "matchLabels", UIDS[1]], &uid);
}

/// A job without labels has those of its pods: what reads it says so.
pub(super) fn label(job: &mut Value) {
    let labels = |pointer: &str| {
        job.pointer(pointer)
            .and_then(Value::as_object)
            .filter(|map| !map.is_empty())
    };
    if labels("/metadata/labels").is_some() {
        return;
    }
    if let Some(labels) = labels("/spec/template/metadata/labels").cloned()
        && let Some(metadata) = job.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("labels".into(), labels.into());
    }
}

/// Sets what is not there, with all above it.
fn fill(object: &mut Value, path: &[&str], value: &Value) {
    let Some((first, rest)) = path.split_first() else {
        if object.is_null() {
            *object = value.clone();
        }
        return;
    };
    if object.is_null() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        fill(map.entry(*first).or_insert(Value::Null), rest, value);
    }
}
