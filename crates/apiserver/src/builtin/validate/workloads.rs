//! The coarse rules of the kinds that hold pod templates. Nothing runs here, so the finer
//! rules (volumes, probes, security contexts) are left to the clusters that run things.

use serde_json::Value;

use super::{
    bounds, claims, containers, immutable, label_selector, list, name_problems, placement, text, volumes,
};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index};
use crate::selector::LabelSelector;

pub(super) fn pod_spec(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = volumes::volumes(spec, path);
    if list(spec, "/containers").is_empty() {
        causes.push(Cause::required(child(path, "containers"), ""));
    }
    causes.extend(containers::containers(spec, path));
    let restart = text(spec, "/restartPolicy");
    causes.extend(placement::placement(spec, path));
    // A template that is not there at all is filled in all the same.
    if !matches!(restart, "Always" | "OnFailure" | "Never" | "") {
        let policies = ["Always", "OnFailure", "Never"];
        causes.push(Cause::not_supported(
            child(path, "restartPolicy"),
            &restart.into(),
            &policies,
        ));
    }
    causes
}

/// Makes a field what it is elsewhere.
pub(super) fn copy(into: &mut Value, from: &Value, name: &str) {
    if let Some(into) = into.as_object_mut() {
        match from.get(name) {
            Some(value) => drop(into.insert(name.to_owned(), value.clone())),
            None => drop(into.remove(name)),
        }
    }
}

/// A selector must be there, and choose what the template makes.
pub(super) fn selected_template(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if new.pointer("/spec/selector").is_none_or(Value::is_null) {
        causes.push(Cause::required("spec.selector", ""));
    }
    causes.extend(chosen_template(new));
    causes
}

/// What there is of a selector must choose what the template makes.
fn chosen_template(new: &Value) -> Vec<Cause> {
    let labels = new.pointer("/spec/template/metadata/labels");
    let selector = new.pointer("/spec/selector").filter(|s| !s.is_null());
    let mut causes = selector.map_or_else(Vec::new, |selector| {
        label_selector(Some(selector), "spec.selector")
    });
    let chooses = selector.is_some_and(|selector| {
        LabelSelector::from_object(Some(selector))
            .is_ok_and(|selector| selector.matches(labels.and_then(Value::as_object)))
    });
    // Of a selector that makes no sense, it is not said that it chooses nothing.
    if !chooses && selector.is_none_or(|selector| LabelSelector::from_object(Some(selector)).is_ok()) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", &shown, detail));
    }
    causes
}

pub(super) fn controller(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match old {
        Some(old) if kind == "StatefulSet" => causes.extend(fixed(new, old)),
        Some(old) => causes.extend(immutable(new, old, "/spec/selector")),
        None => {}
    }
    causes.extend(negative(kind, new));
    causes.extend(bounds::strategy(kind, new));
    let chosen = new
        .pointer("/spec/selector")
        .filter(|selector| !selector.is_null());
    if let Some(chosen) = chosen.filter(|chosen| LabelSelector::from_object(Some(chosen)).is_err())
        && kind != "DaemonSet"
    {
        causes.push(Cause::invalid("spec.selector", chosen, "invalid label selector"));
    }
    causes.extend(status(kind, new, old));
    causes.extend(progress(new));
    if kind == "StatefulSet" {
        causes.extend(set(new, old));
        let policies = ["OrderedReady", "Parallel"];
        let policy = text(new, "/spec/podManagementPolicy");
        if !policies.contains(&policy) {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            causes.push(Cause::invalid("spec.podManagementPolicy", &policy.into(), detail));
        }
        let made = list(new, "/spec/volumeClaimTemplates").iter().enumerate();
        for (i, claim) in made.filter(|_| old.is_none()) {
            let path = child(&index("spec.volumeClaimTemplates", i), "spec");
            causes.extend(claims::spec(claim, None, &path));
        }
    }
    // Of a DaemonSet without a selector it is only said that it chooses nothing.
    causes.extend(if kind == "DaemonSet" {
        chosen_template(new)
    } else {
        selected_template(new)
    });
    if let Some(selector) = new.pointer("/spec/selector").filter(|s| !s.is_null()) {
        let empty = selector.as_object().is_none_or(|s| {
            s.values().all(|v| {
                v.as_object().is_none_or(serde_json::Map::is_empty) && v.as_array().is_none_or(Vec::is_empty)
            })
        });
        if empty {
            let what = kind.to_lowercase();
            let detail = format!("empty selector is invalid for {what}");
            causes.push(Cause::invalid("spec.selector", selector, &detail));
        }
    }
    causes.extend(if kind == "StatefulSet" {
        lasting_pods(&volumes::with_claims(new))
    } else {
        lasting_pods(new.pointer("/spec/template/spec").unwrap_or(&Value::Null))
    });
    if new.pointer("/spec/template/spec/activeDeadlineSeconds").is_some() {
        let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        causes.push(Cause::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            &format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
    causes
}

/// A deployment that waits for progress waits longer than for one pod.
fn progress(new: &Value) -> Vec<Cause> {
    const NAME: &str = "progressDeadlineSeconds";
    let number = |name: &str| new.pointer(&format!("/spec/{name}")).and_then(Value::as_i64);
    let Some(deadline) = number(NAME) else {
        return Vec::new();
    };
    let wrong = |detail: &str| Cause::invalid(child("spec", NAME), &deadline.into(), detail);
    let mut causes = Vec::new();
    if deadline < 0 {
        causes.push(wrong("must be greater than or equal to 0"));
    }
    if deadline <= number("minReadySeconds").unwrap_or_default() {
        causes.push(wrong("must be greater than minReadySeconds"));
    }
    causes
}

/// What a StatefulSet has that others have not.
fn set(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["whenDeleted", "whenScaled"] {
        let place = format!("/spec/persistentVolumeClaimRetentionPolicy/{name}");
        let policy = text(new, &place);
        if !matches!(policy, "Retain" | "Delete") {
            let path = child("spec.persistentVolumeClaimRetentionPolicy", name);
            causes.push(Cause::not_supported(path, &policy.into(), &["Retain", "Delete"]));
        }
    }
    let start = new.pointer("/spec/ordinals/start").unwrap_or(&Value::Null);
    if start.as_i64().is_some_and(|start| start < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.ordinals.start", start, detail));
    }
    let service = text(new, "/spec/serviceName");
    if old.is_none() && !service.is_empty() {
        causes.extend(name_problems(NameRule::Label, service, "spec.serviceName"));
    }
    causes
}

/// There are no more pods of a sort than there are pods.
fn status(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    const COUNTS: [&str; 6] = [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
    ];
    let counted = |name: &&str| match *name {
        "updatedReplicas" => kind != "ReplicaSet",
        "unavailableReplicas" => kind == "Deployment",
        "currentReplicas" => kind == "StatefulSet",
        _ => true,
    };
    let status = |object: &Value| object.get("status").cloned().unwrap_or_default();
    let (after, mut causes) = (status(new), Vec::new());
    if kind == "DaemonSet" || old.is_none_or(|old| status(old) == after) {
        return causes;
    }
    let count = |name: &str| after.get(name).and_then(Value::as_i64).unwrap_or_default();
    let wrong = |name: &str, detail: &str| Cause::invalid(child("status", name), &count(name).into(), detail);
    for name in COUNTS.into_iter().filter(|name| count(name) < 0) {
        causes.push(wrong(name, "must be greater than or equal to 0"));
    }
    let parts = COUNTS
        .into_iter()
        .filter(counted)
        .filter(|name| !matches!(*name, "replicas" | "unavailableReplicas"));
    for name in parts.filter(|name| count(name) > count("replicas")) {
        causes.push(wrong(name, "cannot be greater than status.replicas"));
    }
    if count("availableReplicas") > count("readyReplicas") {
        causes.push(wrong("availableReplicas", "cannot be greater than readyReplicas"));
    }
    causes
}

/// Most of a set stays as it is.
fn fixed(new: &Value, old: &Value) -> Option<Cause> {
    const DETAIL: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    let spec = |set: &Value| set.get("spec").cloned().unwrap_or_default();
    let (mut before, after) = (spec(old), spec(new));
    for name in [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ] {
        copy(&mut before, &after, name);
    }
    (before != after).then(|| Cause::forbidden("spec", DETAIL))
}

/// The older controller has a plain map of labels for a selector, and may change it.
pub(super) fn replication_controller(new: &Value) -> Vec<Cause> {
    let mut causes = negative("ReplicationController", new);
    let selector = new.pointer("/spec/selector").and_then(Value::as_object);
    let labels = new.pointer("/spec/template/metadata/labels");
    match selector.filter(|selector| !selector.is_empty()) {
        None => causes.push(Cause::required("spec.selector", "")),
        Some(_) if new.pointer("/spec/template").is_none() => {}
        Some(selector) => {
            let chosen = |(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value);
            if !selector.iter().all(chosen) {
                let shown = labels.cloned().unwrap_or_default();
                let detail = "`selector` does not match template `labels`";
                causes.push(Cause::invalid("spec.template.metadata.labels", &shown, detail));
            }
        }
    }
    if new.pointer("/spec/template").is_none() {
        causes.push(Cause::required("spec.template", ""));
        return causes;
    }
    causes.extend(lasting_pods(
        new.pointer("/spec/template/spec").unwrap_or(&Value::Null),
    ));
    if new.pointer("/spec/template/spec/activeDeadlineSeconds").is_some() {
        let detail = "activeDeadlineSeconds in ReplicationController is not Supported";
        causes.push(Cause::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            detail,
        ));
    }
    causes
}

/// Numbers that cannot be below zero.
fn negative(kind: &str, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    // A set keeps any number of revisions, even one that makes no sense.
    let kept = if kind == "StatefulSet" {
        ""
    } else {
        "revisionHistoryLimit"
    };
    for name in ["replicas", "minReadySeconds", kept] {
        if let Some(n) = new
            .pointer(&format!("/spec/{name}"))
            .and_then(Value::as_i64)
            .filter(|n| *n < 0)
        {
            causes.push(Cause::invalid(
                child("spec", name),
                &n.into(),
                "must be greater than or equal to 0",
            ));
        }
    }
    causes
}

/// The pods of a template that is kept alive must be such as start again.
fn lasting_pods(spec: &Value) -> Vec<Cause> {
    let mut causes = pod_spec(spec, "spec.template.spec");
    let restart = text(spec, "/restartPolicy");
    if matches!(restart, "OnFailure" | "Never") {
        causes.push(Cause::not_supported(
            "spec.template.spec.restartPolicy",
            &restart.into(),
            &["Always"],
        ));
    }
    causes
}
