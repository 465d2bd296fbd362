//! Addresses and ports of services.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::core::is_reached_from_outside;
use super::{each, set, set_text};

fn kind(service: &Value) -> &str {
    service
        .pointer("/spec/type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether it has ports on nodes.
fn is_open(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// Addresses of a new service. There is no network behind them, so they are made of the service's name:
/// stable, and as good as unique in a range this large.
pub(super) fn service_network(object: &mut Value) {
    let text = |object: &Value, pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if text(object, "/spec/type") == "ExternalName" {
        return;
    }
    let seed = format!(
        "{}/{}",
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name")
    );
    let digest: [u8; 32] = Sha256::digest(seed.as_bytes()).into();
    let [block, middle, host, high, low, ..] = digest;
    if text(object, "/spec/clusterIP").is_empty() {
        set_text(
            object,
            "/spec/clusterIP",
            &format!("10.{}.{middle}.{}", 96 + block % 16, host.max(1)),
        );
    }
    let ip = text(object, "/spec/clusterIP");
    let dual = ip == "None"
        && object
            .pointer("/spec/selector")
            .and_then(Value::as_object)
            .is_none_or(Map::is_empty);
    set(object, "/spec/clusterIPs", json!([ip]));
    set(
        object,
        "/spec/ipFamilies",
        if dual {
            json!(["IPv4", "IPv6"])
        } else {
            json!(["IPv4"])
        },
    );
    set(
        object,
        "/spec/ipFamilyPolicy",
        if dual { "RequireDualStack" } else { "SingleStack" },
    );
    let wants_none = object.pointer("/spec/allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    if is_open(object) && !wants_none {
        let mut next = 30000 + ((u32::from(high) << 8) | u32::from(low)) % 2700;
        each(object, "/spec/ports", |port| {
            set(port, "/nodePort", next);
            next += 1;
        });
    }
}

/// A service keeps its addresses and ports when a writer leaves them out, and loses what its new type has not, unless the
/// writer wants it otherwise.
pub(super) fn keep(new: &mut Value, old: &Value) {
    let named = |service: &Value| kind(service) == "ExternalName";
    let balanced = |service: &Value| kind(service) == "LoadBalancer";
    let (opens, opened) = (is_open(new), is_open(old));
    let mut lost: Vec<&str> = Vec::new();
    match (named(old), named(new)) {
        (false, false) => keep_addresses(new, old),
        (false, true) => lost.extend([
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ]),
        (true, _) => {}
    }
    if is_reached_from_outside(old) && !is_reached_from_outside(new) {
        lost.push("externalTrafficPolicy");
    }
    if balanced(old) && !balanced(new) {
        lost.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        let before = old.get("spec");
        spec.retain(|name, value| {
            !lost.contains(&name.as_str()) || before.and_then(|spec| spec.get(name)) != Some(value)
        });
    }
    if opened && opens {
        keep_ports(new, old);
    } else if opened && node_ports(old) == node_ports(new) {
        each(new, "/spec/ports", |port| {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        });
    }
    if !balanced(new)
        && let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".into(), json!({}));
    }
    service_network(new);
}

fn keep_addresses(new: &mut Value, old: &Value) {
    let ip = |object: &Value| {
        let ip = object.pointer("/spec/clusterIP").and_then(Value::as_str);
        ip.unwrap_or_default().to_owned()
    };
    if ip(new).is_empty() {
        set_text(new, "/spec/clusterIP", &ip(old));
    }
    if ip(new) == ip(old) {
        for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = old.pointer(&format!("/spec/{name}")) {
                set(new, &format!("/spec/{name}"), value.clone());
            }
        }
    }
}

fn node_port(port: &Value) -> Option<i64> {
    port.get("nodePort")
        .and_then(Value::as_i64)
        .filter(|port| *port != 0)
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    ports.into_iter().flatten().filter_map(node_port).collect()
}

/// A port that has none gets the one that the port of its name had, if that is free.
fn keep_ports(new: &mut Value, old: &Value) {
    let taken = node_ports(new);
    let before = old.pointer("/spec/ports").and_then(Value::as_array);
    each(new, "/spec/ports", |port| {
        let mut same = before
            .into_iter()
            .flatten()
            .filter(|p| p.get("name") == port.get("name"));
        let earlier = same.next().and_then(node_port);
        if let Some(earlier) = earlier.filter(|earlier| !taken.contains(earlier)) {
            set(port, "/nodePort", earlier);
        }
    });
}
