//! Where pods may run: selectors of nodes, affinities, constraints on how they spread, and what they tolerate.

use serde_json::Value;

use super::bounds::{Rule, Rules, check};
use super::{label_selector, list, text};
use crate::schema::{Cause, child, index, meta, names};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn placement(spec: &Value, path: &str) -> Vec<Cause> {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    let mut causes = meta::validate_labels(selector, &child(path, "nodeSelector"));
    let affinity = spec.get("affinity").unwrap_or(&Value::Null);
    let place = child(path, "affinity");
    if let Some(nodes) = affinity.get("nodeAffinity") {
        causes.extend(node_affinity(nodes, &child(&place, "nodeAffinity")));
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        if let Some(pods) = affinity.get(name) {
            causes.extend(pod_affinity(pods, &child(&place, name)));
        }
    }
    causes.extend(spread(spec, &child(path, "topologySpreadConstraints")));
    for (i, toleration) in list(spec, "/tolerations").iter().enumerate() {
        causes.extend(self::toleration(
            toleration,
            &index(&child(path, "tolerations"), i),
        ));
    }
    causes
}

fn node_affinity(affinity: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(required) = affinity.get(REQUIRED).filter(|required| required.is_object()) {
        causes.extend(node_selector(required, &child(path, REQUIRED)));
    }
    for (i, preferred) in list(affinity, &format!("/{PREFERRED}")).iter().enumerate() {
        let path = index(&child(path, PREFERRED), i);
        causes.extend(weight(preferred, &path));
        let term = preferred.get("preference").unwrap_or(&Value::Null);
        causes.extend(node_term(term, false, &child(&path, "preference")));
    }
    causes
}

/// Of the terms of a selector of nodes, one is to be met.
pub(super) fn node_selector(selector: &Value, path: &str) -> Vec<Cause> {
    let (path, terms) = (
        child(path, "nodeSelectorTerms"),
        list(selector, "/nodeSelectorTerms"),
    );
    if terms.is_empty() {
        let detail = "must have at least one node selector term";
        return vec![Cause::required(path, detail)];
    }
    let terms = terms.iter().enumerate();
    terms
        .flat_map(|(i, term)| node_term(term, true, &index(&path, i)))
        .collect()
}

fn node_term(term: &Value, values_too: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, wanted) in list(term, "/matchExpressions").iter().enumerate() {
        let path = index(&child(path, "matchExpressions"), i);
        causes.extend(requirement(wanted, values_too, &path));
    }
    for (i, wanted) in list(term, "/matchFields").iter().enumerate() {
        causes.extend(field(wanted, &index(&child(path, "matchFields"), i)));
    }
    causes
}

fn unknown_operator(operator: &str, path: &str) -> Cause {
    let detail = "not a valid selector operator";
    Cause::invalid(child(path, "operator"), &operator.into(), detail)
}

fn requirement(wanted: &Value, values_too: bool, path: &str) -> Vec<Cause> {
    let (values, at) = (list(wanted, "/values"), child(path, "values"));
    let problem = match text(wanted, "/operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            Some(Cause::required(at.as_str(), detail))
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            Some(Cause::forbidden(at.as_str(), detail))
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            Some(Cause::required(at.as_str(), detail))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => None,
        other => Some(unknown_operator(other, path)),
    };
    let mut causes: Vec<Cause> = problem.into_iter().collect();
    causes.extend(label_name(text(wanted, "/key"), &child(path, "key")));
    for (i, value) in values.iter().enumerate().filter(|_| values_too) {
        let problems = names::label_value(value.as_str().unwrap_or_default());
        causes.extend(
            problems
                .iter()
                .map(|problem| Cause::invalid(index(&at, i), value, problem)),
        );
    }
    causes
}

/// Of the fields of a node, only its name can be asked for.
fn field(wanted: &Value, path: &str) -> Vec<Cause> {
    let values = list(wanted, "/values");
    let problem = match text(wanted, "/operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            Some(Cause::required(child(path, "values"), detail))
        }
        "In" | "NotIn" => None,
        other => Some(unknown_operator(other, path)),
    };
    let mut causes: Vec<Cause> = problem.into_iter().collect();
    let key = text(wanted, "/key");
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        causes.push(Cause::invalid(child(path, "key"), &key.into(), detail));
        return causes;
    }
    for (i, value) in values.iter().enumerate() {
        let at = index(&child(path, "values"), i);
        let problems = names::dns_subdomain(value.as_str().unwrap_or_default());
        causes.extend(
            problems
                .iter()
                .map(|problem| Cause::invalid(at.as_str(), value, problem)),
        );
    }
    causes
}

fn weight(term: &Value, path: &str) -> Option<Cause> {
    let weight = term.get("weight").and_then(Value::as_i64).unwrap_or_default();
    let detail = "must be in the range 1-100";
    (!(1..=100).contains(&weight)).then(|| Cause::invalid(child(path, "weight"), &weight.into(), detail))
}

fn pod_affinity(affinity: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, term) in list(affinity, &format!("/{REQUIRED}")).iter().enumerate() {
        causes.extend(pod_term(term, &index(&child(path, REQUIRED), i)));
    }
    for (i, preferred) in list(affinity, &format!("/{PREFERRED}")).iter().enumerate() {
        let path = index(&child(path, PREFERRED), i);
        causes.extend(weight(preferred, &path));
        let term = preferred.get("podAffinityTerm").unwrap_or(&Value::Null);
        causes.extend(pod_term(term, &child(&path, "podAffinityTerm")));
    }
    causes
}

fn pod_term(term: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["labelSelector", "namespaceSelector"] {
        causes.extend(label_selector(term.get(name), &child(path, name)));
    }
    for namespace in list(term, "/namespaces") {
        let problems = names::dns_label(namespace.as_str().unwrap_or_default());
        let at = child(path, "namespace");
        causes.extend(
            problems
                .iter()
                .map(|problem| Cause::invalid(at.as_str(), namespace, problem)),
        );
    }
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        causes.extend(label_keys(term, name, path));
    }
    let (key, at) = (text(term, "/topologyKey"), child(path, "topologyKey"));
    if key.is_empty() {
        causes.push(Cause::required(at.as_str(), "can not be empty"));
    }
    causes.extend(label_name(key, &at));
    causes
}

/// Labels whose values are those of the pod itself narrow a selector.
fn label_keys(term: &Value, name: &str, path: &str) -> Vec<Cause> {
    let (keys, path) = (list(term, &format!("/{name}")), child(path, name));
    if keys.is_empty() {
        return Vec::new();
    }
    if !term.get("labelSelector").is_some_and(Value::is_object) {
        let detail = "must not be specified when labelSelector is not set";
        return vec![Cause::forbidden(path, detail)];
    }
    let keys = keys.iter().enumerate();
    keys.flat_map(|(i, key)| label_name(key.as_str().unwrap_or_default(), &index(&path, i)))
        .collect()
}

fn label_name(name: &str, path: &str) -> Vec<Cause> {
    let problems = names::qualified_name(name);
    problems
        .iter()
        .map(|problem| Cause::invalid(path, &name.into(), problem))
        .collect()
}

fn spread(spec: &Value, path: &str) -> Vec<Cause> {
    const POLICIES: Rules = &[
        ("nodeAffinityPolicy", Rule::OneOf(&["Honor", "Ignore"])),
        ("nodeTaintsPolicy", Rule::OneOf(&["Honor", "Ignore"])),
    ];
    let all = list(spec, "/topologySpreadConstraints");
    let mut causes = Vec::new();
    for (i, constraint) in all.iter().enumerate() {
        let path = index(path, i);
        let not_positive = |name: &str, number: i64| {
            let detail = "must be greater than zero";
            (number <= 0).then(|| Cause::invalid(child(&path, name), &number.into(), detail))
        };
        let number = |name: &str| constraint.get(name).and_then(Value::as_i64);
        causes.extend(not_positive("maxSkew", number("maxSkew").unwrap_or_default()));
        let kind = |constraint| {
            (
                text(constraint, "/topologyKey"),
                text(constraint, "/whenUnsatisfiable"),
            )
        };
        let (key, action) = kind(constraint);
        if key.is_empty() {
            causes.push(Cause::required(child(&path, "topologyKey"), "can not be empty"));
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            let at = child(&path, "whenUnsatisfiable");
            causes.push(Cause::not_supported(at, &action.into(), &actions));
        }
        if all.iter().skip(i + 1).any(|other| kind(other) == (key, action)) {
            let at = child(&path, "{topologyKey, whenUnsatisfiable}");
            causes.push(Cause::duplicate(at, &format!("{{{key}, {action}}}").into()));
        }
        if let Some(domains) = number("minDomains") {
            causes.extend(not_positive("minDomains", domains));
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                causes.push(Cause::invalid(
                    child(&path, "minDomains"),
                    &domains.into(),
                    &detail,
                ));
            }
        }
        causes.extend(check(constraint, &path, POLICIES));
        causes.extend(label_keys(constraint, "matchLabelKeys", &path));
        let selector = constraint.get("labelSelector");
        causes.extend(label_selector(selector, &child(&path, "labelSelector")));
    }
    causes
}

fn toleration(toleration: &Value, path: &str) -> Vec<Cause> {
    let of = |name: &str| text(toleration, &format!("/{name}"));
    let (key, operator, value) = (of("key"), of("operator"), of("value"));
    let at = child(path, "operator");
    let wrong = |shown: &str, detail: &str| Cause::invalid(at.as_str(), &shown.into(), detail);
    let mut causes = Vec::new();
    if !key.is_empty() {
        causes.extend(label_name(key, &child(path, "key")));
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(wrong(operator, detail));
    }
    let effect = of("effect");
    let has_time = toleration.get("tolerationSeconds").is_some_and(Value::is_number);
    if has_time && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(Cause::invalid(child(path, "effect"), &effect.into(), detail));
    }
    match operator {
        "Equal" | "" => {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                causes.push(wrong(value, &problems.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            causes.push(wrong(value, "value must be empty when `operator` is 'Exists'"));
        }
        "Exists" => {}
        "Lt" | "Gt" => {
            // Comparing what taints say is off by default.
            let known = ["Equal", "Exists", "Lt", "Gt"];
            causes.push(Cause::not_supported(at.as_str(), &operator.into(), &known));
        }
        _ => {
            let known = ["Equal", "Exists"];
            causes.push(Cause::not_supported(at.as_str(), &operator.into(), &known));
        }
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        let at = child(path, "effect");
        causes.push(Cause::not_supported(at, &effect.into(), &effects));
    }
    causes
}
