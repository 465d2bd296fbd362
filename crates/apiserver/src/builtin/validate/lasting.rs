//! Kinds of which only little may change, or only little is looked at.

use serde_json::Value;

use super::{addresses, immutable, list, text};
use crate::schema::{Cause, child, index};

/// How volumes of a class are made is for those that are still to be made: another way is another class.
pub(super) fn storage_class(new: &Value, old: &Value) -> Vec<Cause> {
    ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"]
        .iter()
        .filter_map(|field| immutable(new, old, &format!("/{field}")))
        .collect()
}

pub(super) fn slice(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let kind = text(new, "/addressType");
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (i, port) in list(new, "/ports").iter().enumerate() {
        let name = text(port, "/name");
        if seen.contains(&name) {
            causes.push(Cause::duplicate(child(&index("ports", i), "name"), &name.into()));
        }
        seen.push(name);
    }
    // Endpoints that were taken before are taken again.
    let same = old.is_some_and(|old| old.get("endpoints") == new.get("endpoints"));
    for (i, endpoint) in list(new, "/endpoints").iter().enumerate().filter(|_| !same) {
        let path = child(&index("endpoints", i), "addresses");
        let given = list(endpoint, "/addresses");
        if given.is_empty() {
            let detail = "must contain at least 1 address";
            causes.push(Cause::required(path.as_str(), detail));
        }
        for (j, address) in given.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            causes.extend(self::address(address, kind, &path, j));
        }
    }
    causes.extend(old.and_then(|old| immutable(new, old, "/addressType")));
    causes
}

fn address(given: &str, kind: &str, path: &str, i: usize) -> Vec<Cause> {
    if !matches!(kind, "IPv4" | "IPv6") {
        return Vec::new();
    }
    let place = index(path, i);
    if let Some(problem) = addresses::address(given, &place) {
        return vec![problem];
    }
    let mut causes = Vec::new();
    if given.contains(':') != (kind == "IPv6") {
        let detail = format!("must be an {kind} address");
        causes.push(Cause::invalid(path, &given.into(), &detail));
    }
    causes.extend(addresses::endpoint(given, &place));
    causes
}

pub(super) fn endpoints(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, subset) in list(new, "/subsets").iter().enumerate() {
        let path = index("subsets", i);
        let fields = ["addresses", "notReadyAddresses"];
        let of = |field: &str| list(subset, &format!("/{field}"));
        if fields.iter().all(|field| of(field).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            causes.push(Cause::required(path.as_str(), detail));
        }
        for field in fields {
            for (j, address) in of(field).iter().enumerate() {
                let (ip, at) = (text(address, "/ip"), index(&child(&path, field), j));
                let at = child(&at, "ip");
                causes.extend(addresses::address(ip, &at));
                causes.extend(addresses::endpoint(ip, &at));
            }
        }
        let ports = of("ports");
        for (j, port) in ports.iter().enumerate() {
            let path = index(&child(&path, "ports"), j);
            if ports.len() > 1 && text(port, "/name").is_empty() {
                causes.push(Cause::required(child(&path, "name"), ""));
            }
            let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
            causes.extend(addresses::port(number, &child(&path, "port")));
        }
    }
    causes
}
