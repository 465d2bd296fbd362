//! What a service of each type may have.

use serde_json::Value;

use super::bounds::{Rule, Rules, check};
use super::{addresses, list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index, names};

const RULES: Rules = &[
    ("sessionAffinity", Rule::OneOf(&["ClientIP", "None"])),
    ("internalTrafficPolicy", Rule::OneOf(&["Cluster", "Local"])),
    (
        "ipFamilyPolicy",
        Rule::OneOf(&["PreferDualStack", "RequireDualStack", "SingleStack"]),
    ),
    (
        "trafficDistribution",
        Rule::OneOf(&["PreferClose", "PreferSameZone", "PreferSameNode"]),
    ),
];

/// Fields that services of the type `LoadBalancer` have alone.
const BALANCED: [(&str, &str); 3] = [
    ("loadBalancerClass", "loadBalancerClass"),
    ("allocateLoadBalancerNodePorts", "allocateLoadBalancerNodePorts"),
    ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
];

pub(super) fn service(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(spec) = new.get("spec") else {
        return Vec::new();
    };
    let ty = text(spec, "/type");
    let mut causes = check(spec, "spec", RULES);
    let name = text(spec, "/externalName");
    if ty == "ExternalName" && name.is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    } else if ty == "ExternalName" {
        let name = name.strip_suffix('.').unwrap_or(name);
        causes.extend(name_problems(NameRule::Subdomain, name, "spec.externalName"));
    }
    let is_open = matches!(ty, "NodePort" | "LoadBalancer");
    if is_open && text(spec, "/clusterIP") == "None" {
        let detail = format!("may not be set to 'None' for {ty} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &"None".into(), &detail));
    }
    let policy = spec
        .get("externalTrafficPolicy")
        .filter(|policy| policy.is_string());
    if let Some(policy) = policy.filter(|_| is_open) {
        let allowed = &["Cluster", "Local"];
        if !allowed.iter().any(|one| policy == one) {
            causes.push(Cause::not_supported(
                "spec.externalTrafficPolicy",
                policy,
                allowed,
            ));
        }
    } else if let Some(policy) = policy.filter(|_| list(spec, "/externalIPs").is_empty()) {
        let detail = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", policy, detail));
    }
    causes.extend(families(spec));
    for (name, shown) in BALANCED {
        let is_there = spec
            .get(name)
            .is_some_and(|value| !value.is_null() && value != &Value::Array(Vec::new()));
        if ty != "LoadBalancer" && is_there {
            let detail = "may only be used when `type` is 'LoadBalancer'";
            causes.push(Cause::forbidden(child("spec", shown), detail));
        }
    }
    causes.extend(reached(new, old));
    for (i, port) in list(spec, "/ports").iter().enumerate() {
        let path = index("spec.ports", i);
        let name = text(port, "/name");
        if !name.is_empty() {
            causes.extend(name_problems(NameRule::Label, name, &child(&path, "name")));
        }
        if let Some(target) = port.get("targetPort").and_then(Value::as_str) {
            causes.extend(addresses::port_name(target, &child(&path, "targetPort")));
        }
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            let wrong =
                |problem: String| Cause::invalid(child(&path, "appProtocol"), &protocol.into(), &problem);
            causes.extend(names::qualified_name(protocol).into_iter().map(wrong));
        }
        let number = port.get("nodePort").and_then(Value::as_i64).unwrap_or_default();
        if is_open && number != 0 && !(30000..=32767).contains(&number) {
            let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            causes.push(Cause::invalid(child(&path, "nodePort"), &number.into(), detail));
        }
        let is_taken = port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() != 0;
        if ty == "ClusterIP" && is_taken {
            let detail = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(child(&path, "nodePort"), detail));
        }
    }
    if let Some(old) = old.filter(|old| text(old, "/spec/type") == ty && ty == "LoadBalancer") {
        let class = |service: &Value| service.pointer("/spec/loadBalancerClass").cloned();
        if class(new) != class(old) {
            let detail = "may not change once set";
            let shown = class(new).unwrap_or_default();
            causes.push(Cause::invalid("spec.loadBalancerClass", &shown, detail));
        }
    }
    if let Some(old) = old {
        let address = |service: &Value| text(service, "/spec/clusterIP").to_owned();
        let named = |service: &Value| text(service, "/spec/type") == "ExternalName";
        let (before, after) = (address(old), address(new));
        if !named(old) && !named(new) && !before.is_empty() && before != after {
            let detail = "may not change once set";
            let shown = Value::from(vec![after]);
            causes.push(Cause::invalid("spec.clusterIPs[0]", &shown, detail));
        }
    }
    causes
}

/// There are addresses of one family. Only what has none itself may be of both.
fn families(spec: &Value) -> Option<Cause> {
    let selects = spec
        .get("selector")
        .and_then(Value::as_object)
        .is_some_and(|map| !map.is_empty());
    if text(spec, "/type") == "ExternalName" || text(spec, "/clusterIP") == "None" && !selects {
        return None;
    }
    let families = list(spec, "/ipFamilies");
    if let Some(i) = families.iter().position(|family| family == "IPv6") {
        let detail = "not configured on this cluster";
        return Some(Cause::invalid(
            index("spec.ipFamilies", i),
            &"IPv6".into(),
            detail,
        ));
    }
    (text(spec, "/ipFamilyPolicy") == "RequireDualStack").then(|| {
        let detail = "this cluster is not configured for dual-stack services";
        Cause::invalid("spec.ipFamilyPolicy", &"RequireDualStack".into(), detail)
    })
}

/// The addresses by which a service is reached, and from where. What was taken before is taken again.
fn reached(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    const TIMEOUT: &str = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
    let mut causes = Vec::new();
    let known = |name: &str, given: &str| {
        let before = old
            .map(|old| list(old, &format!("/spec/{name}")))
            .unwrap_or_default();
        before.iter().any(|one| one == given)
    };
    let given = |name: &str| {
        let all = list(new, &format!("/spec/{name}"));
        let texts: Vec<&str> = all.iter().map(|one| one.as_str().unwrap_or_default()).collect();
        texts
    };
    let own = text(new, "/spec/clusterIP");
    if old.is_none() && !matches!(own, "" | "None") {
        causes.extend(addresses::address(own, "spec.clusterIPs[0]"));
    }
    for (i, address) in given("externalIPs").into_iter().enumerate() {
        let path = index("spec.externalIPs", i);
        if !known("externalIPs", address) {
            let problem = addresses::address(address, &path);
            causes.extend(problem.or_else(|| addresses::endpoint(address, &path)));
        }
    }
    for (i, block) in given("loadBalancerSourceRanges").into_iter().enumerate() {
        let path = index("spec.LoadBalancerSourceRanges", i);
        if !known("loadBalancerSourceRanges", block) {
            causes.extend(addresses::block(block.trim(), &path));
        }
    }
    let timeout = new.pointer(TIMEOUT).unwrap_or(&Value::Null);
    if timeout.as_i64().is_some_and(|n| !(1..=86400).contains(&n)) {
        let path = TIMEOUT.trim_start_matches('/').replace('/', ".");
        let detail = "must be greater than 0 and less than 86400";
        causes.push(Cause::invalid(path, timeout, detail));
    }
    let check = new.pointer("/spec/healthCheckNodePort").unwrap_or(&Value::Null);
    let is_local = text(new, "/spec/externalTrafficPolicy") == "Local";
    let is_checked = is_local && text(new, "/spec/type") == "LoadBalancer";
    if old.is_none() && !is_checked && check.as_i64().is_some_and(|port| port != 0) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid("spec.healthCheckNodePort", check, detail));
    }
    causes
}
