//! Rules of the baseline about what a pod shares with its node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::checks::{Pod, Violation, plural, quoted, these, violation, volumes};
use crate::admission::request::text;

pub(super) fn namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec.get(*field) == Some(&Value::Bool(true)))
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() {
        return None;
    }
    violation("host namespaces", shared.join(", "))
}

pub(super) fn path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let names: Vec<&str> = volumes(pod)
        .filter(|volume| volume.get("hostPath").is_some())
        .map(|volume| text(volume, "/name"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let word = plural("volume", "volumes", names.len());
    violation("hostPath volumes", format!("{word} {}", quoted(names)))
}

pub(super) fn ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = pod.names(|container| {
        let list = container.get("ports").and_then(Value::as_array);
        let bad: Vec<String> = list
            .into_iter()
            .flatten()
            .filter_map(|port| port.get("hostPort")?.as_i64())
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let any = !bad.is_empty();
        ports.extend(bad);
        any
    });
    if names.is_empty() {
        return None;
    }
    let (uses, word) = (
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
    );
    let ports: Vec<String> = ports.into_iter().collect();
    violation(
        "hostPort",
        format!("{} {uses} {word} {}", these(&names), ports.join(", ")),
    )
}

pub(super) fn probes(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 34 {
        return None;
    }
    let mut hosts = BTreeSet::new();
    let names: BTreeSet<&str> = pod
        .names(|container| {
            let handlers = [
                "/livenessProbe",
                "/readinessProbe",
                "/startupProbe",
                "/lifecycle/postStart",
                "/lifecycle/preStop",
            ];
            let bad: Vec<&str> = handlers
                .iter()
                .filter_map(|handler| container.pointer(handler))
                .flat_map(|handler| ["/httpGet/host", "/tcpSocket/host"].map(|host| text(handler, host)))
                .filter(|host| !host.is_empty())
                .collect();
            let any = !bad.is_empty();
            hosts.extend(bad);
            any
        })
        .into_iter()
        .collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    let uses = plural("uses", "use", names.len());
    violation(
        "probe or lifecycle host",
        format!("{} {uses} {word} {}", these(&names), quoted(hosts)),
    )
}
