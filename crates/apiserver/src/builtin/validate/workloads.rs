//! The coarse rules of pods and of the kinds that hold pod templates. Nothing runs here, so the finer
//! rules (volumes, probes, security contexts) are left to the clusters that run things.

use serde_json::Value;

use super::{immutable, label_selector, list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index};
use crate::selector::LabelSelector;

fn pod_spec(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = list(spec, "/containers");
    if containers.is_empty() {
        causes.push(Cause::required(child(path, "containers"), ""));
    }
    let mut seen = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let path = index(&child(path, "containers"), i);
        let name = text(container, "/name");
        if name.is_empty() {
            causes.push(Cause::required(child(&path, "name"), ""));
        } else {
            causes.extend(name_problems(NameRule::Label, name, &child(&path, "name")));
            if seen.contains(&name) {
                causes.push(Cause::duplicate(child(&path, "name"), &name.into()));
            }
            seen.push(name);
        }
        if text(container, "/image").is_empty() {
            causes.push(Cause::required(child(&path, "image"), ""));
        }
        let policy = text(container, "/imagePullPolicy");
        if !matches!(policy, "Always" | "IfNotPresent" | "Never") {
            let policies = ["Always", "IfNotPresent", "Never"];
            causes.push(Cause::not_supported(
                child(&path, "imagePullPolicy"),
                &policy.into(),
                &policies,
            ));
        }
    }
    let restart = text(spec, "/restartPolicy");
    if !matches!(restart, "Always" | "OnFailure" | "Never") {
        let policies = ["Always", "OnFailure", "Never"];
        causes.push(Cause::not_supported(
            child(path, "restartPolicy"),
            &restart.into(),
            &policies,
        ));
    }
    causes
}

pub(super) fn pod(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    if old.is_some() {
        return Vec::new();
    }
    pod_spec(new.get("spec").unwrap_or(&Value::Null), "spec")
}

pub(super) fn controller(kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(old) = old {
        causes.extend(immutable(new, old, "/spec/selector"));
    }
    for name in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
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
    match new.pointer("/spec/selector").filter(|s| !s.is_null()) {
        None => {
            causes.push(Cause::required("spec.selector", ""));
            let labels = new
                .pointer("/spec/template/metadata/labels")
                .cloned()
                .unwrap_or_default();
            causes.push(Cause::invalid(
                "spec.template.metadata.labels",
                &labels,
                "`selector` does not match template `labels`",
            ));
        }
        Some(selector) => {
            causes.extend(label_selector(Some(selector), "spec.selector"));
            let empty = selector.as_object().is_none_or(|s| {
                s.values().all(|v| {
                    v.as_object().is_none_or(serde_json::Map::is_empty)
                        && v.as_array().is_none_or(Vec::is_empty)
                })
            });
            if empty {
                let what = kind.to_lowercase();
                let detail = format!("empty selector is invalid for {what}");
                causes.push(Cause::invalid("spec.selector", selector, &detail));
            }
            let labels = new.pointer("/spec/template/metadata/labels");
            if let Ok(selector) = LabelSelector::from_object(Some(selector))
                && !selector.matches(labels.and_then(Value::as_object))
            {
                let shown = labels.cloned().unwrap_or_default();
                let detail = "`selector` does not match template `labels`";
                causes.push(Cause::invalid("spec.template.metadata.labels", &shown, detail));
            }
        }
    }
    let spec = new.pointer("/spec/template/spec").unwrap_or(&Value::Null);
    causes.extend(pod_spec(spec, "spec.template.spec"));
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

pub(super) fn job(new: &Value) -> Vec<Cause> {
    let spec = new.pointer("/spec/template/spec").unwrap_or(&Value::Null);
    let mut causes = pod_spec(spec, "spec.template.spec");
    if text(spec, "/restartPolicy") == "Always" {
        causes.push(Cause::required(
            "spec.template.spec.restartPolicy",
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
    causes
}

/// Every metric says from where it comes.
pub(super) fn autoscaler(new: &Value) -> Vec<Cause> {
    let kinds = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let mut causes = Vec::new();
    for (i, metric) in list(new, "/spec/metrics").iter().enumerate() {
        let (path, kind) = (child(&index("spec.metrics", i), "type"), text(metric, "/type"));
        if kind.is_empty() {
            causes.push(Cause::required(path.clone(), "must specify a metric source type"));
        }
        if !kinds.contains(&kind) {
            causes.push(Cause::not_supported(path, &kind.into(), &kinds));
        }
    }
    causes
}
