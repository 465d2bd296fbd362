//! Validation of jobs: which pods are theirs, and what of them may change.

use serde_json::{Map, Value};

use super::bounds::{Rule, Rules, check};
use super::workloads::{copy, pod_spec, selected_template};
use super::{Cause, immutable, text};
use crate::builtin::job::{NAMES, UIDS};
use crate::schema::{child, key};
use crate::selector::LabelSelector;

pub(super) fn job(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = generated(new);
    causes.extend(selected_template(new));
    causes.extend(work(new.get("spec").unwrap_or(&Value::Null), "spec"));
    if let Some(old) = old {
        causes.extend(immutable(new, old, "/spec/selector"));
        for field in [
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
            "successPolicy",
        ] {
            causes.extend(immutable(new, old, &format!("/spec/{field}")));
        }
        causes.extend(completions(new, old));
        causes.extend(template(new, old));
    }
    causes
}

/// What is to be done, in a job or in one that is still to be made.
fn work(spec: &Value, path: &str) -> Vec<Cause> {
    const RULES: Rules = &[
        ("parallelism", Rule::NotNegative),
        ("completions", Rule::NotNegative),
        ("activeDeadlineSeconds", Rule::NotNegative),
        ("backoffLimit", Rule::NotNegative),
        ("ttlSecondsAfterFinished", Rule::NotNegative),
        ("completionMode", Rule::OneOf(&["NonIndexed", "Indexed"])),
        (
            "podReplacementPolicy",
            Rule::OneOf(&["Failed", "TerminatingOrFailed"]),
        ),
    ];
    let mut causes = check(spec, path, RULES);
    let pods = spec.pointer("/template/spec").unwrap_or(&Value::Null);
    let path = child(path, "template.spec");
    causes.extend(pod_spec(pods, &path));
    if matches!(text(pods, "/restartPolicy"), "Always" | "") {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        causes.push(Cause::required(child(&path, "restartPolicy"), detail));
    }
    causes
}

/// How often it is to be done stays, unless the pods are numbered and as many at a time.
fn completions(new: &Value, old: &Value) -> Option<Cause> {
    let at = |job: &Value, name: &str| job.get("spec").and_then(|spec| spec.get(name)).cloned();
    let is_elastic = at(new, "completionMode") == Some("Indexed".into())
        && at(new, "completions").is_some()
        && at(new, "completions") == at(new, "parallelism");
    immutable(new, old, "/spec/completions").filter(|_| !is_elastic)
}

pub(super) fn cron_job(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    const RULES: Rules = &[
        ("startingDeadlineSeconds", Rule::NotNegative),
        ("concurrencyPolicy", Rule::OneOf(&["Allow", "Forbid", "Replace"])),
        ("successfulJobsHistoryLimit", Rule::NotNegative),
        ("failedJobsHistoryLimit", Rule::NotNegative),
    ];
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let schedule = text(spec, "/schedule");
    let mut causes = check(spec, "spec", RULES);
    if schedule.is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    } else if let Err(why) = super::schedule::check(schedule) {
        causes.push(Cause::invalid("spec.schedule", &schedule.into(), &why));
    } else if schedule.contains("TZ") && old.is_none_or(|old| !text(old, "/spec/schedule").contains("TZ")) {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        causes.push(Cause::invalid("spec.schedule", &schedule.into(), detail));
    }
    let zone = |job: &Value| {
        job.pointer("/spec/timeZone")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    if let Some(zone) = zone(new).filter(|new| old.and_then(zone).as_ref() != Some(new))
        && let Some(why) = super::schedule::zone_problem(&zone)
    {
        causes.push(Cause::invalid("spec.timeZone", &zone.into(), &why));
    }
    let job = spec.pointer("/jobTemplate/spec").unwrap_or(&Value::Null);
    causes.extend(work(job, "spec.jobTemplate.spec"));
    if let Some(selector) = job.get("selector").filter(|selector| !selector.is_null()) {
        let detail = "`selector` will be auto-generated";
        causes.push(Cause::invalid("spec.jobTemplate.spec.selector", selector, detail));
    }
    if let Some(by_hand @ Value::Bool(true)) = job.get("manualSelector") {
        let place = "spec.jobTemplate.spec.manualSelector";
        causes.push(Cause::not_supported(place, by_hand, &["nil", "false"]));
    }
    let name = text(new, "/metadata/name");
    if old.is_none() && name.len() > 52 {
        let detail = "must be no more than 52 characters";
        causes.push(Cause::invalid("metadata.name", &name.into(), detail));
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
