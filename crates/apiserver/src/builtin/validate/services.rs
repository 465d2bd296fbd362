//! What a service of each type may have.

use serde_json::Value;

use super::bounds::{Rule, Rules, check};
use super::{list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index};

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
    for (name, shown) in BALANCED {
        let is_there = spec
            .get(name)
            .is_some_and(|value| !value.is_null() && value != &Value::Array(Vec::new()));
        if ty != "LoadBalancer" && is_there {
            let detail = "may only be used when `type` is 'LoadBalancer'";
            causes.push(Cause::forbidden(child("spec", shown), detail));
        }
    }
    for (i, port) in list(spec, "/ports").iter().enumerate() {
        let path = index("spec.ports", i);
        let name = text(port, "/name");
        if !name.is_empty() {
            causes.extend(name_problems(NameRule::Label, name, &child(&path, "name")));
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
