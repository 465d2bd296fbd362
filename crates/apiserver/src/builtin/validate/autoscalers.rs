//! Autoscalers: of what there may be how many, by which figures, and how fast.

use serde_json::Value;

use super::{list, text};
use crate::quantity::Quantity;
use crate::schema::{Cause, child, index, names};

/// The kinds of metrics and the fields that describe them, in the order in which the real server looks for them.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

pub(super) fn autoscaler(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let number = |name: &str| spec.get(name).and_then(Value::as_i64);
    let (least, most) = (number("minReplicas"), number("maxReplicas").unwrap_or_default());
    let mut causes = Vec::new();
    let wrong = |name: &str, n: i64, detail: &str| Cause::invalid(child("spec", name), &n.into(), detail);
    let was_zero = old.and_then(|old| old.pointer("/spec/minReplicas")?.as_i64()) == Some(0);
    if let Some(least) = least.filter(|least| *least < i64::from(!was_zero)) {
        let detail = format!("must be greater than or equal to {}", i64::from(!was_zero));
        causes.push(wrong("minReplicas", least, &detail));
    }
    if most == 0 {
        let detail = "must be set and greater than 0";
        causes.push(Cause::required("spec.maxReplicas", detail));
    } else if most < 0 {
        causes.push(wrong("maxReplicas", most, "must be greater than or equal to 1"));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(wrong("maxReplicas", most, detail));
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    let lax = old.is_some_and(|old| !is_of_group(text(old, "/spec/scaleTargetRef/apiVersion")));
    let path = "spec.scaleTargetRef";
    causes.extend(reference(target, path));
    let version = text(target, "/apiVersion");
    let problem = unreadable(version)
        .or_else(|| (!is_of_group(version)).then(|| "apiVersion must specify API group".into()));
    causes.extend(
        problem
            .filter(|_| !lax)
            .map(|problem| Cause::invalid(child(path, "apiVersion"), &version.into(), &problem)),
    );
    causes.extend(metrics(spec, old, least == Some(0)));
    for name in ["scaleUp", "scaleDown"] {
        let rules = spec.pointer(&format!("/behavior/{name}"));
        if let Some(rules) = rules.filter(|rules| rules.is_object()) {
            causes.extend(self::rules(rules, &child("spec.behavior", name)));
        }
    }
    causes
}

/// What is scaled or measured.
fn reference(to: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["kind", "name"] {
        let (name, at) = (text(to, &format!("/{field}")), child(path, field));
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
        } else {
            let problems = names::path_segment(name).into_iter();
            causes.extend(problems.map(|problem| Cause::invalid(at.as_str(), &name.into(), &problem)));
        }
    }
    causes
}

/// Why a version cannot be read.
fn unreadable(version: &str) -> Option<String> {
    (version.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {version}"))
}

fn is_of_group(version: &str) -> bool {
    version.matches('/').count() == 1 && !version.starts_with('/')
}

fn metrics(spec: &Value, old: Option<&Value>, to_zero: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metrics = list(spec, "/metrics");
    let described = |metric: &Value| unreadable(text(metric, "/object/describedObject/apiVersion"));
    // A version that was taken before is taken again.
    let lax = old.is_some_and(|old| {
        let mut before = list(old, "/spec/metrics").iter();
        before.any(|metric| described(metric).is_some())
    });
    for (i, metric) in metrics.iter().enumerate() {
        let path = index("spec.metrics", i);
        causes.extend(self::metric(metric, &path));
        if let Some(problem) = described(metric).filter(|_| !lax) {
            let version = text(metric, "/object/describedObject/apiVersion");
            let at = child(&path, "object.describedObject.apiVersion");
            causes.push(Cause::invalid(at, &version.into(), &problem));
        }
    }
    let from_outside = |metric: &Value| matches!(text(metric, "/type"), "Object" | "External");
    if to_zero && !metrics.iter().any(from_outside) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(Cause::forbidden("spec.metrics", detail));
    }
    causes
}

fn metric(metric: &Value, path: &str) -> Vec<Cause> {
    const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let mut causes = Vec::new();
    let (kind, at) = (text(metric, "/type"), child(path, "type"));
    if kind.is_empty() {
        causes.push(Cause::required(at.as_str(), "must specify a metric source type"));
    }
    if !KINDS.contains(&kind) {
        causes.push(Cause::not_supported(at, &kind.into(), &KINDS));
    }
    let given: Vec<(&str, &str, &Value)> = SOURCES
        .iter()
        .filter_map(|(kind, field)| Some((*kind, *field, metric.get(field).filter(|s| s.is_object())?)))
        .collect();
    if let Some((kind, field, source)) = given.first() {
        causes.extend(self::source(kind, source, &child(path, field)));
    }
    let expected = SOURCES
        .iter()
        .find(|(name, _)| *name == kind)
        .map(|(_, field)| *field);
    if let Some(expected) = expected.filter(|expected| !given.iter().any(|(_, field, _)| field == expected)) {
        let detail = "must populate information for the given metric source";
        causes.push(Cause::required(child(path, expected), detail));
    }
    if given.len() != 1 {
        let others = given.iter().filter(|(_, field, _)| Some(*field) != expected);
        causes.extend(others.map(|(_, field, _)| {
            let detail = "must populate the given metric source only";
            Cause::forbidden(child(path, field), detail)
        }));
    }
    causes
}

fn source(kind: &str, source: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut needed = |pointer: &str, detail: &str| {
        if text(source, pointer).is_empty() {
            let at = child(path, &pointer.trim_start_matches('/').replace('/', "."));
            causes.push(Cause::required(at, detail));
        }
    };
    match kind {
        "Resource" => needed("/name", "must specify a resource name"),
        "ContainerResource" => {
            needed("/name", "must specify a resource name");
            needed("/container", "must specify a container");
        }
        _ => needed("/metric/name", "must specify a metric name"),
    }
    if kind == "Object" {
        let object = source.get("describedObject").unwrap_or(&Value::Null);
        causes.extend(reference(object, &child(path, "describedObject")));
    }
    let target = source.get("target").unwrap_or(&Value::Null);
    let path = child(path, "target");
    causes.extend(self::target(target, &path));
    let has = |name: &str| target.get(name).is_some_and(|value| !value.is_null());
    let (needed, other, lacking, twice) = match kind {
        "Resource" | "ContainerResource" => (
            "averageUtilization",
            Some("averageValue"),
            "must set either a target raw value or a target utilization",
            Some("may not set both a target raw value and a target utilization"),
        ),
        "Pods" => (
            "averageValue",
            None,
            "must specify a positive target averageValue",
            None,
        ),
        "External" => (
            "averageValue",
            Some("value"),
            "must set either a target value for metric or a per-pod target",
            Some("may not set both a target value for metric and a per-pod target"),
        ),
        _ => (
            "averageValue",
            Some("value"),
            "must set either a target value or averageValue",
            None,
        ),
    };
    let has_other = other.is_some_and(has);
    if !has(needed) && !has_other {
        causes.push(Cause::required(child(&path, needed), lacking));
    }
    if let (Some(other), Some(detail)) = (other, twice)
        && has(needed)
        && has_other
    {
        causes.push(Cause::forbidden(child(&path, other), detail));
    }
    causes
}

fn target(target: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (kind, at) = (text(target, "/type"), child(path, "type"));
    if kind.is_empty() {
        causes.push(Cause::required(at.as_str(), "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        causes.push(Cause::invalid(at, &kind.into(), detail));
    }
    for name in ["value", "averageValue"] {
        let Some(shown) = target.get(name).and_then(Value::as_str) else {
            continue;
        };
        if Quantity::parse(shown).is_some_and(|amount| amount <= Quantity::ZERO) {
            causes.push(Cause::invalid(
                child(path, name),
                &shown.into(),
                "must be positive",
            ));
        }
    }
    let share = target.get("averageUtilization").unwrap_or(&Value::Null);
    if share.as_i64().is_some_and(|share| share < 1) {
        let at = child(path, "averageUtilization");
        causes.push(Cause::invalid(at, share, "must be greater than 0"));
    }
    causes
}

/// How fast it goes in one direction.
fn rules(rules: &Value, path: &str) -> Vec<Cause> {
    const WINDOW: &str = "stabilizationWindowSeconds";
    const CHOICES: [&str; 3] = ["Disabled", "Max", "Min"];
    let mut causes = Vec::new();
    let window = rules.get(WINDOW).unwrap_or(&Value::Null);
    let detail = match window.as_i64() {
        Some(n) if n < 0 => Some("must be greater than or equal to zero"),
        Some(n) if n > 3600 => Some("must be less than or equal to 3600"),
        _ => None,
    };
    causes.extend(detail.map(|detail| Cause::invalid(child(path, WINDOW), window, detail)));
    if let Some(choice) = rules.get("selectPolicy").filter(|choice| choice.is_string())
        && !CHOICES.iter().any(|known| choice == known)
    {
        causes.push(Cause::not_supported(
            child(path, "selectPolicy"),
            choice,
            &CHOICES,
        ));
    }
    let policies = list(rules, "/policies");
    let path = child(path, "policies");
    if policies.is_empty() {
        let detail = "must specify at least one Policy";
        causes.push(Cause::required(path.as_str(), detail));
    }
    for (i, policy) in policies.iter().enumerate() {
        let (path, kind) = (index(&path, i), text(policy, "/type"));
        let kinds = ["Percent", "Pods"];
        if !kinds.contains(&kind) {
            causes.push(Cause::not_supported(child(&path, "type"), &kind.into(), &kinds));
        }
        for (name, most) in [("value", None), ("periodSeconds", Some(1800))] {
            let number = policy.get(name).and_then(Value::as_i64).unwrap_or_default();
            let detail = if number <= 0 {
                "must be greater than zero"
            } else if most.is_some_and(|most| number > most) {
                "must be less than or equal to 1800"
            } else {
                continue;
            };
            causes.push(Cause::invalid(child(&path, name), &number.into(), detail));
        }
    }
    causes
}
