//! What containers of a pod may be, as far as people get it wrong often.

use serde_json::Value;

use super::bounds::{Rule, Rules, check};
use super::{list, name_problems, quotas, text};
use crate::resources::{Amounts, amounts};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index};

const RULES: Rules = &[
    (
        "terminationMessagePolicy",
        Rule::OneOf(&["File", "FallbackToLogsOnError"]),
    ),
    (
        "imagePullPolicy",
        Rule::OneOf(&["Always", "IfNotPresent", "Never"]),
    ),
];

const POD_RULES: Rules = &[(
    "dnsPolicy",
    Rule::OneOf(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]),
)];

/// The containers of a pod, those that run before the others too.
pub(super) fn containers(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for field in ["containers", "initContainers"] {
        for (i, container) in list(spec, &format!("/{field}")).iter().enumerate() {
            let path = index(&child(path, field), i);
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
            causes.extend(check(container, &path, RULES));
            causes.extend(ports(container, &child(&path, "ports")));
            causes.extend(variables(container, &child(&path, "env")));
            causes.extend(mounts(container, &child(&path, "volumeMounts")));
            causes.extend(probes(container, &path));
            causes.extend(demands(container, &path));
        }
    }
    causes.extend(check(spec, path, POD_RULES));
    causes
}

fn ports(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (i, port) in list(container, "/ports").iter().enumerate() {
        let path = index(path, i);
        let name = text(port, "/name");
        if !name.is_empty() && seen.contains(&name) {
            causes.push(Cause::duplicate(child(&path, "name"), &name.into()));
        }
        seen.push(name);
        let number = |name: &str| port.get(name).and_then(Value::as_i64).unwrap_or_default();
        if number("containerPort") == 0 {
            causes.push(Cause::required(child(&path, "containerPort"), ""));
        }
        for name in ["containerPort", "hostPort"] {
            let number = number(name);
            if number != 0 && !(1..=65535).contains(&number) {
                let detail = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(child(&path, name), &number.into(), detail));
            }
        }
        let protocols: Rules = &[("protocol", Rule::OneOf(&["SCTP", "TCP", "UDP"]))];
        causes.extend(check(port, &path, protocols));
    }
    causes
}

fn variables(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, variable) in list(container, "/env").iter().enumerate() {
        let path = index(path, i);
        let name = text(variable, "/name");
        let is_plain = |c: char| (' '..='~').contains(&c) && c != '=';
        if name.is_empty() {
            causes.push(Cause::required(child(&path, "name"), ""));
        } else if !name.chars().all(is_plain) {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            causes.push(Cause::invalid(child(&path, "name"), &name.into(), detail));
        }
        let Some(from) = variable.get("valueFrom").and_then(Value::as_object) else {
            continue;
        };
        let path = child(&path, "valueFrom");
        if from.is_empty() {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            causes.push(Cause::invalid(path.as_str(), &"".into(), detail));
        } else if !text(variable, "/value").is_empty() {
            let detail = "may not be specified when `value` is not empty";
            causes.push(Cause::invalid(path.as_str(), &"".into(), detail));
        }
        for reference in ["configMapKeyRef", "secretKeyRef"] {
            if from
                .get(reference)
                .is_some_and(|from| text(from, "/key").is_empty())
            {
                causes.push(Cause::required(child(&child(&path, reference), "key"), ""));
            }
        }
    }
    causes
}

fn mounts(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (i, mount) in list(container, "/volumeMounts").iter().enumerate() {
        let (path, place) = (child(&index(path, i), "mountPath"), text(mount, "/mountPath"));
        if place.is_empty() {
            causes.push(Cause::required(path.as_str(), ""));
        }
        if seen.contains(&place) {
            causes.push(Cause::invalid(path, &place.into(), "must be unique"));
        }
        seen.push(place);
    }
    causes
}

/// A probe asks in one way.
fn probes(container: &Value, path: &str) -> Vec<Cause> {
    const RULES: Rules = &[
        ("initialDelaySeconds", Rule::NotNegative),
        ("timeoutSeconds", Rule::NotNegative),
        ("periodSeconds", Rule::NotNegative),
        ("successThreshold", Rule::NotNegative),
        ("failureThreshold", Rule::NotNegative),
    ];
    let mut causes = Vec::new();
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(name).filter(|probe| probe.is_object()) else {
            continue;
        };
        let path = child(path, name);
        causes.extend(check(probe, &path, RULES));
        let mut ways = ["exec", "httpGet", "tcpSocket", "grpc"]
            .into_iter()
            .filter(|way| probe.get(way).is_some_and(Value::is_object));
        if ways.next().is_none() {
            causes.push(Cause::required(path.as_str(), "must specify a handler type"));
        }
        for way in ways {
            let detail = "may not specify more than 1 handler type";
            causes.push(Cause::forbidden(child(&path, way), detail));
        }
        let successes = probe.get("successThreshold").unwrap_or(&Value::Null);
        if name != "readinessProbe" && successes.as_i64().is_some_and(|n| n > 1) {
            causes.push(Cause::invalid(
                child(&path, "successThreshold"),
                successes,
                "must be 1",
            ));
        }
    }
    causes
}

/// Nobody asks for less than nothing, which would take from what others ask for, or for more than they may have; or for what
/// cannot be shared and does not say how much of it.
fn demands(container: &Value, path: &str) -> Vec<Cause> {
    let path = child(path, "resources");
    let of = |which: &str| amounts(container, &format!("/resources/{which}"));
    let (limits, requests) = (of("limits"), of("requests"));
    let mut causes = Vec::new();
    let named = |amounts: &Amounts, which: &str, causes: &mut Vec<Cause>| {
        for (name, amount) in amounts {
            let at = format!("{}[{name}]", child(&path, which));
            causes.extend(quotas::container_resource_name(name, &at));
            causes.extend(quotas::amount_problems(name, *amount, &at));
        }
    };
    named(&limits, "limits", &mut causes);
    named(&requests, "requests", &mut causes);
    for (name, amount) in &requests {
        let shared = quotas::may_be_overcommitted(name);
        let relation = match limits.get(name) {
            None if !shared => {
                let detail = "Limit must be set for non overcommitable resources";
                causes.push(Cause::required(child(&path, "limits"), detail));
                continue;
            }
            Some(limit) if amount != limit && !shared => format!("equal to {name} limit of {limit}"),
            Some(limit) if amount > limit => format!("less than or equal to {name} limit of {limit}"),
            _ => continue,
        };
        let (at, detail) = (child(&path, "requests"), format!("must be {relation}"));
        causes.push(Cause::invalid(at, &amount.to_string().into(), &detail));
    }
    let any = |wanted: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| wanted(name));
    if any(|name| name.starts_with("hugepages-")) && !any(|name| matches!(name, "cpu" | "memory")) {
        causes.push(Cause::forbidden(path, "HugePages require cpu or memory"));
    }
    causes
}
