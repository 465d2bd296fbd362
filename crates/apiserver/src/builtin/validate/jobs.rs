//! Validation of jobs: which pods are theirs, and what of them may change.

use serde_json::{Map, Value};

use super::workloads::{copy, pod_spec, selected_template};
use super::{Cause, immutable, text};
use crate::builtin::job::{NAMES, UIDS};
use crate::schema::{child, key};
use crate::selector::LabelSelector;

/// What becomes of a job whose time has come while the one before it still runs.
const POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];

pub(super) fn job(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = generated(new);
    causes.extend(selected_template(new));
    causes.extend(ending_pods(new, "/spec/template/spec", "spec.template.spec"));
    if let Some(old) = old {
        causes.extend(immutable(new, old, "/spec/selector"));
        causes.extend(immutable(new, old, "/spec/completionMode"));
        causes.extend(template(new, old));
    }
    causes
}

pub(super) fn cron_job(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(new, "/spec/schedule").is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    }
    let policy = text(new, "/spec/concurrencyPolicy");
    if !POLICIES.contains(&policy) {
        causes.push(Cause::not_supported(
            "spec.concurrencyPolicy",
            &policy.into(),
            &POLICIES,
        ));
    }
    let template = "spec.jobTemplate.spec.template.spec";
    causes.extend(ending_pods(new, "/spec/jobTemplate/spec/template/spec", template));
    for name in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        let number = new.pointer(&format!("/spec/{name}")).and_then(Value::as_i64);
        if let Some(number) = number.filter(|number| *number < 0) {
            let detail = "must be greater than or equal to 0";
            causes.push(Cause::invalid(child("spec", name), &number.into(), detail));
        }
    }
    causes
}

/// The pods of a job must be such as come to an end.
fn ending_pods(new: &Value, pointer: &str, path: &str) -> Vec<Cause> {
    let spec = new.pointer(pointer).unwrap_or(&Value::Null);
    let mut causes = pod_spec(spec, path);
    if text(spec, "/restartPolicy") == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        causes.push(Cause::required(child(path, "restartPolicy"), detail));
    }
    causes
}

/// What the server makes must be as it makes it, unless the selector is made by hand.
fn generated(new: &Value) -> Vec<Cause> {
    let Some(selector) = new.pointer("/spec/selector") else {
        return Vec::new();
    };
    if new.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return Vec::new();
    }
    let labels = new
        .pointer("/spec/template/metadata/labels")
        .unwrap_or(&Value::Null);
    let (uid, name) = (text(new, "/metadata/uid"), text(new, "/metadata/name"));
    let mut causes = Vec::new();
    let mut expected = Map::new();
    for (label, wanted) in UIDS
        .map(|label| (label, uid))
        .into_iter()
        .chain(NAMES.map(|label| (label, name)))
    {
        if labels.get(label).and_then(Value::as_str) != Some(wanted) {
            let detail = format!("must be '{wanted}'");
            causes.push(Cause::invalid(
                key("spec.template.metadata.labels", label),
                labels,
                &detail,
            ));
        }
        expected.insert(label.to_owned(), wanted.into());
    }
    let chooses = LabelSelector::from_object(Some(selector));
    if chooses.is_ok_and(|selector| !selector.matches(Some(&expected))) {
        causes.push(Cause::invalid(
            "spec.selector",
            selector,
            "`selector` not auto-generated",
        ));
    }
    causes
}

/// The template stays as it is; while the job is suspended, where its pods run and what they need may change.
fn template(new: &Value, old: &Value) -> Vec<Cause> {
    let is_suspended = old.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if !is_suspended {
        return immutable(new, old, "/spec/template").into_iter().collect();
    }
    let spec = |job: &Value| job.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let (mut before, after) = (spec(old), spec(new));
    for field in ["affinity", "nodeSelector", "tolerations", "schedulingGates"] {
        copy(&mut before, &after, field);
    }
    for field in ["containers", "initContainers"] {
        let containers = before.get_mut(field).and_then(Value::as_array_mut);
        let newer = after.get(field).and_then(Value::as_array);
        for (container, newer) in containers.into_iter().flatten().zip(newer.into_iter().flatten()) {
            copy(container, newer, "resources");
        }
    }
    (before != after)
        .then(|| Cause::invalid("spec.template.spec", &after, "field is immutable"))
        .into_iter()
        .collect()
}
