//! What containers of a pod may be, as far as people get it wrong often.

use serde_json::Value;

use super::bounds::{Rule, Rules, check};
use super::{addresses, handlers, list, name_problems, quotas, text, variables};
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
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
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
            causes.extend(variables::variables(container, &path));
            causes.extend(mounts(container, &child(&path, "volumeMounts")));
            causes.extend(demands(container, &path));
            causes.extend(profile(container, &path));
            let is_first = field == "initContainers" && text(container, "/restartPolicy") != "Always";
            causes.extend(if is_first {
                handlers::none(container, &path)
            } else {
                handlers::handlers(container, grace, &path)
            });
        }
    }
    causes.extend(taken_ports(spec, &child(path, "containers")));
    causes.extend(profile(spec, path));
    causes.extend(check(spec, path, POD_RULES));
    causes
}

fn ports(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (i, port) in list(container, "/ports").iter().enumerate() {
        let path = index(path, i);
        let name = text(port, "/name");
        if !name.is_empty() {
            let problems = addresses::port_name(name, &child(&path, "name"));
            if problems.is_empty() && seen.contains(&name) {
                causes.push(Cause::duplicate(child(&path, "name"), &name.into()));
            }
            causes.extend(problems);
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

/// A port of the node goes to one container. In the network of the node, the ports of a container are those of the node; a
/// template need not say so.
fn taken_ports(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut taken = Vec::new();
    let ports = list(spec, "/containers")
        .iter()
        .enumerate()
        .flat_map(|(i, container)| {
            let path = child(&index(path, i), "ports");
            let ports = list(container, "/ports").iter().enumerate();
            ports.map(move |(j, port)| (child(&index(&path, j), "hostPort"), port))
        });
    let ports: Vec<_> = ports.collect();
    let number = |port: &Value, name: &str| port.get(name).and_then(Value::as_i64).unwrap_or_default();
    for (path, port) in &ports {
        let host = number(port, "hostPort");
        if host == 0 {
            continue;
        }
        let what = format!("{}/{}/{host}", text(port, "/protocol"), text(port, "/hostIP"));
        if taken.contains(&what) {
            causes.push(Cause::duplicate(path.as_str(), &what.as_str().into()));
        }
        taken.push(what);
    }
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for (path, port) in &ports {
            let host = number(port, "hostPort");
            if host != 0 && host != number(port, "containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                causes.push(Cause::invalid(path.as_str(), &host.into(), detail));
            }
        }
    }
    causes
}

/// Which calls of the system are filtered.
fn profile(of: &Value, path: &str) -> Option<Cause> {
    const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
    let profile = of.pointer("/securityContext/seccompProfile")?;
    let path = child(path, "securityContext.seccompProfile.type");
    match text(profile, "/type") {
        _ if !profile.is_object() => None,
        "" => Some(Cause::required(
            path,
            "type is required when seccompProfile is set",
        )),
        kind if TYPES.contains(&kind) => None,
        kind => Some(Cause::not_supported(path, &kind.into(), &TYPES)),
    }
}

fn mounts(container: &Value, list_path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (i, mount) in list(container, "/volumeMounts").iter().enumerate() {
        let (path, place) = (
            child(&index(list_path, i), "mountPath"),
            text(mount, "/mountPath"),
        );
        if place.is_empty() {
            causes.push(Cause::required(path.as_str(), ""));
        }
        if seen.contains(&place) {
            causes.push(Cause::invalid(path, &place.into(), "must be unique"));
        }
        seen.push(place);
        causes.extend(shared(mount, container, list_path));
    }
    causes
}

/// How far what is mounted later is seen, and whether what is below may be written.
fn shared(mount: &Value, container: &Value, path: &str) -> Vec<Cause> {
    const RULES: Rules = &[
        (
            "mountPropagation",
            Rule::OneOf(&["Bidirectional", "HostToContainer", "None"]),
        ),
        (
            "recursiveReadOnly",
            Rule::OneOf(&["Disabled", "Enabled", "IfPossible"]),
        ),
    ];
    let mut causes = check(mount, path, RULES);
    let is_privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
    let propagation = text(mount, "/mountPropagation");
    if propagation == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        causes.push(Cause::forbidden(child(path, "mountPropagation"), detail));
    }
    if matches!(text(mount, "/recursiveReadOnly"), "Enabled" | "IfPossible") {
        let mut bad = |detail: &str| causes.push(Cause::forbidden(child(path, "recursiveReadOnly"), detail));
        if mount.get("readOnly") != Some(&Value::Bool(true)) {
            bad("may only be specified when readOnly is true");
        }
        if !matches!(propagation, "None" | "") {
            bad("may only be specified when mountPropagation is None or not specified");
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
