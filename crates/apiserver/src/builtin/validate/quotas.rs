//! LimitRange and ResourceQuota.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{list, text};
use crate::quantity::Quantity;
use crate::resources::{Amounts, amounts, quantity};
use crate::schema::{Cause, child, index, names};

const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// What is counted, not measured.
const NUMBERS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

fn quota_name(name: &str) -> bool {
    let plain = name
        .strip_prefix("requests.")
        .or_else(|| name.strip_prefix("limits."))
        .unwrap_or(name);
    COMPUTE.contains(&plain)
        || NUMBERS.contains(&name)
        || name == "requests.storage"
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

fn native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn extended(name: &str) -> bool {
    !native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn key(path: &str, name: &str) -> String {
    format!("{path}[{name}]")
}

fn resource_name(name: &str, path: &str) -> Vec<Cause> {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        let causes = problems.iter().map(|p| Cause::invalid(path, &name.into(), p));
        return causes.collect();
    }
    if !name.contains('/') && name != "storage" && !quota_name(name) {
        let detail = "must be a standard resource type or fully qualified";
        return vec![Cause::invalid(path, &name.into(), detail)];
    }
    Vec::new()
}

pub(super) fn container_resource_name(name: &str, path: &str) -> Vec<Cause> {
    let mut causes = resource_name(name, path);
    let mut bad = |detail: &str| causes.push(Cause::invalid(path, &name.into(), detail));
    if !name.contains('/') {
        if !COMPUTE.contains(&name) && !name.starts_with("hugepages-") {
            bad("must be a standard resource for containers");
        }
    } else if !native(name) && !extended(name) {
        bad("doesn't follow extended resource name standard");
    }
    causes
}

pub(super) fn limit_range(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut types = BTreeSet::new();
    for (i, limit) in list(new, "/spec/limits").iter().enumerate() {
        let path = index("spec.limits", i);
        let ty = text(limit, "/type");
        let problems = names::qualified_name(ty);
        for problem in &problems {
            causes.push(Cause::invalid(child(&path, "type"), &ty.into(), problem));
        }
        let known = ty.contains('/') || matches!(ty, "Pod" | "Container" | "PersistentVolumeClaim");
        if problems.is_empty() && !known {
            let detail = "must be a standard limit type or fully qualified";
            causes.push(Cause::invalid(child(&path, "type"), &ty.into(), detail));
        }
        if !types.insert(ty) {
            causes.push(Cause::duplicate(child(&path, "type"), &ty.into()));
        }
        causes.extend(limit_item(limit, ty, &path));
    }
    causes
}

fn limit_item(limit: &Value, ty: &str, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut named = BTreeSet::new();
    let mut read = |field: &str, causes: &mut Vec<Cause>| -> Amounts {
        let amounts = amounts(limit, &format!("/{field}"));
        for name in amounts.keys() {
            let at = key(&child(path, field), name);
            causes.extend(match ty {
                "Pod" | "Container" => container_resource_name(name, &at),
                _ => resource_name(name, &at),
            });
            named.insert(name.clone());
        }
        amounts
    };
    let max = read("max", &mut causes);
    let min = read("min", &mut causes);
    let (mut default, mut request) = (Amounts::new(), Amounts::new());
    if ty == "Pod" {
        for field in ["default", "defaultRequest"] {
            if limit.get(field).is_some() {
                let detail = "may not be specified when `type` is 'Pod'";
                causes.push(Cause::forbidden(child(path, field), detail));
            }
        }
    } else {
        default = read("default", &mut causes);
        request = read("defaultRequest", &mut causes);
    }
    if ty == "PersistentVolumeClaim" && !min.contains_key("storage") && !max.contains_key("storage") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        causes.push(Cause::required(child(path, "limits"), detail));
    }
    let ratio = read("maxLimitRequestRatio", &mut causes);
    for name in &named {
        let [min, max, default, request, ratio] =
            [&min, &max, &default, &request, &ratio].map(|all| all.get(name).copied());
        let mut above =
            |low: Option<Quantity>, high: Option<Quantity>, field: &str, shown, what: [&str; 2]| {
                let (Some(low), Some(high)) = (low, high) else {
                    return;
                };
                if low > high {
                    let [first, second] = what;
                    let detail = format!("{first} value {low} is greater than {second} value {high}");
                    let shown: Option<Quantity> = shown;
                    let value = shown.map_or(Value::Null, |q| q.to_string().into());
                    causes.push(Cause::invalid(key(&child(path, field), name), &value, &detail));
                }
            };
        above(min, max, "min", min, ["min", "max"]);
        above(
            min,
            request,
            "defaultRequest",
            request,
            ["min", "default request"],
        );
        above(
            request,
            max,
            "defaultRequest",
            request,
            ["default request", "max"],
        );
        above(
            request,
            default,
            "defaultRequest",
            request,
            ["default request", "default limit"],
        );
        above(min, default, "default", min, ["min", "default"]);
        above(default, max, "default", max, ["default", "max"]);
        let Some(ratio) = ratio else { continue };
        let mut bad = |detail: &str| {
            let at = key(&child(path, "maxLimitRequestRatio"), name);
            causes.push(Cause::invalid(at, &ratio.to_string().into(), detail));
        };
        if ratio < Quantity::count(1) {
            bad(&format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max) {
            #[allow(
                clippy::cast_precision_loss,
                reason = "the real server divides such numbers, too"
            )]
            let (widest, wanted) = (
                max.milli() as f64 / min.milli() as f64,
                ratio.milli() as f64 / 1000.0,
            );
            if wanted > widest {
                bad(&format!("ratio {ratio} is greater than max/min = {widest:.6}"));
            }
        }
    }
    causes
}

pub(super) fn resource_quota(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = hard(new, "/spec/hard");
    causes.extend(hard(new, "/status/hard"));
    causes.extend(hard(new, "/status/used"));
    let scopes: Vec<&str> = list(new, "/spec/scopes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let shown = Value::from(scopes.clone());
    let limited = amounts(new, "/spec/hard");
    let misfit = |scope: &str| {
        limited
            .keys()
            .filter(|name| quota_name(name) && !fits(scope, name))
            .count()
    };
    let mut bad = |detail: &str| causes.push(Cause::invalid("spec.scopes", &shown, detail));
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            bad("unsupported scope");
        }
        for _ in 0..misfit(scope) {
            bad("unsupported scope applied to resource");
        }
    }
    for (one, other) in CONFLICTS {
        if scopes.contains(&one) && scopes.contains(&other) {
            bad("conflicting scopes");
        }
    }
    if let Some(old) = old {
        let set = |value: &Value| -> BTreeSet<String> {
            let all = list(value, "/spec/scopes").iter().filter_map(Value::as_str);
            all.map(str::to_owned).collect()
        };
        if set(old) != set(new) {
            bad("field is immutable");
        }
    }
    causes.extend(selectors(new));
    causes
}

fn hard(quota: &Value, pointer: &str) -> Vec<Cause> {
    let path = pointer.trim_start_matches('/').replace('/', ".");
    let mut causes = Vec::new();
    let map = quota.pointer(pointer).and_then(Value::as_object);
    for (name, value) in map.into_iter().flatten() {
        let at = key(&path, name);
        causes.extend(resource_name(name, &at));
        if !name.contains('/') && !quota_name(name) {
            let detail = "must be a standard resource for quota";
            causes.push(Cause::invalid(&at, &name.as_str().into(), detail));
        }
        let Some(amount) = quantity(value) else { continue };
        causes.extend(amount_problems(name, amount, &at));
    }
    causes
}

/// Nobody has less than nothing, or half of what is counted.
pub(super) fn amount_problems(name: &str, amount: Quantity, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut bad = |detail: &str| causes.push(Cause::invalid(at, &amount.to_string().into(), detail));
    if amount.is_negative() {
        bad("must be greater than or equal to 0");
    }
    if (NUMBERS.contains(&name) || extended(name)) && amount.milli() % 1000 != 0 {
        bad("must be an integer");
    }
    causes
}

/// Whether more of it may be used than was asked for.
pub(super) fn may_be_overcommitted(name: &str) -> bool {
    native(name) && !name.starts_with("hugepages-")
}

/// Whether a scope says anything about a resource.
fn fits(scope: &str, name: &str) -> bool {
    let compute = ["cpu", "memory"].iter().any(|c| {
        name == *c || name.strip_prefix("requests.") == Some(c) || name.strip_prefix("limits.") == Some(c)
    });
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => name == "pods" || compute,
        _ => true,
    }
}

fn selectors(quota: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let mut causes = Vec::new();
    let all = list(quota, "/spec/scopeSelector/matchExpressions");
    let shown = as_there(all);
    let limited = amounts(quota, "/spec/hard");
    for selector in all {
        let (scope, operator) = (text(selector, "/scopeName"), text(selector, "/operator"));
        let values = list(selector, "/values");
        if !SCOPES.contains(&scope) {
            let at = child(PATH, "scopeName");
            causes.push(Cause::invalid(at, &scope.into(), "unsupported scope"));
        }
        for _ in limited
            .keys()
            .filter(|name| quota_name(name) && !fits(scope, name))
        {
            causes.push(Cause::invalid(
                PATH,
                &shown,
                "unsupported scope applied to resource",
            ));
        }
        if SCOPES.contains(&scope) && !scope.ends_with("Class") && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            causes.push(Cause::invalid(child(PATH, "operator"), &operator.into(), detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => causes.push(Cause::required(
                child(PATH, "values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => causes.push(Cause::invalid(
                child(PATH, "values"),
                &values.into(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let detail = "not a valid selector operator";
                causes.push(Cause::invalid(child(PATH, "operator"), &operator.into(), detail));
            }
        }
    }
    let selected = |scope: &str| all.iter().any(|selector| text(selector, "/scopeName") == scope);
    for (one, other) in CONFLICTS {
        if selected(one) && selected(other) {
            let scopes = quota.pointer("/spec/scopes").unwrap_or(&Value::Null);
            causes.push(Cause::invalid(PATH, scopes, "conflicting scopes"));
        }
    }
    causes
}

/// A selector as the real server shows it.
fn as_there(all: &[Value]) -> Value {
    let field = |selector: &Value, name: &str| selector.get(name).cloned().unwrap_or_default();
    let all = all.iter().map(|selector| {
        json!({
            "ScopeName": field(selector, "scopeName"),
            "Operator": field(selector, "operator"),
            "Values": field(selector, "values"),
        })
    });
    json!({"MatchExpressions": all.collect::<Vec<_>>()})
}
