//! ResourceQuota: what may be in a namespace, by number and by what it asks for.
//!
//! Here is only the reckoning. Who writes `status.used`, and when, is for the server: what a request takes is written before its
//! object is, what an object gives back when it goes is counted by a controller.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::request::text;
use super::{Operation, Rejection, Request};
use crate::quantity::Quantity;
use crate::resources::{Amounts, add, amounts, containers, of_pod, quality, quantity};
use crate::selector::LabelSelector;

/// A kind of object that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted<'a> {
    Pods,
    Services,
    Claims,
    /// Nothing but how many there are: group and resource.
    Others(&'a str, &'a str),
}

const POD_NAMES: [&str; 11] = [
    "count/pods",
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const SERVICE_NAMES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];
const CLAIM_NAMES: [&str; 3] = [
    "count/persistentvolumeclaims",
    "persistentvolumeclaims",
    "requests.storage",
];
/// What a pod must say for itself where it is limited.
const DEMANDED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const CLASS: &str = ".storageclass.storage.k8s.io/";

impl<'a> Counted<'a> {
    /// How a resource counts; events do not.
    pub fn of(group: &'a str, resource: &'a str) -> Option<Self> {
        Some(match (group, resource) {
            ("" | "events.k8s.io", "events") => return None,
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            (group, resource) => Self::Others(group, resource),
        })
    }

    /// Whether a name in a quota is about this kind.
    fn counts(self, name: &str) -> bool {
        match self {
            Self::Pods => {
                POD_NAMES.contains(&name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || name.strip_prefix("requests.").is_some_and(extended)
            }
            Self::Services => SERVICE_NAMES.contains(&name),
            Self::Claims => {
                CLAIM_NAMES.contains(&name)
                    || name
                        .split_once(CLASS)
                        .is_some_and(|(_, what)| CLAIM_NAMES.contains(&what))
            }
            Self::Others(group, resource) => {
                let count = format!("count/{}", crate::status::qualified(group, resource));
                let plain = group.is_empty()
                    && matches!(
                        resource,
                        "configmaps" | "secrets" | "resourcequotas" | "replicationcontrollers"
                    );
                name == count || (plain && name == resource)
            }
        }
    }

    /// What an object takes.
    pub fn usage(self, object: &Value) -> Amounts {
        let mut used = Amounts::new();
        let mut one = |name: &str, amount: Quantity| {
            used.insert(name.to_owned(), amount);
        };
        let single = Quantity::count(1);
        match self {
            Self::Pods => {
                one("count/pods", single);
                if !matches!(text(object, "/status/phase"), "Failed" | "Succeeded") {
                    one("pods", single);
                    let spec = object.get("spec").unwrap_or(&Value::Null);
                    used.extend(computed(&of_pod(spec, "requests"), &of_pod(spec, "limits")));
                }
            }
            Self::Services => {
                one("count/services", single);
                one("services", single);
                let ports = object.pointer("/spec/ports").and_then(Value::as_array);
                let ports: Vec<&Value> = ports.into_iter().flatten().collect();
                let number = |n: usize| Quantity::count(i64::try_from(n).unwrap_or(i64::MAX));
                let ty = text(object, "/spec/type");
                let allotted =
                    object.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
                let node_ports = match ty {
                    "NodePort" => ports.len(),
                    "LoadBalancer" if allotted => ports.len(),
                    "LoadBalancer" => ports
                        .iter()
                        .filter(|p| p.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0)
                        .count(),
                    _ => 0,
                };
                one("services.nodeports", number(node_ports));
                one(
                    "services.loadbalancers",
                    number(usize::from(ty == "LoadBalancer")),
                );
            }
            Self::Claims => {
                one("count/persistentvolumeclaims", single);
                one("persistentvolumeclaims", single);
                let annotated = object
                    .pointer("/metadata/annotations")
                    .and_then(|a| a.get("volume.beta.kubernetes.io/storage-class")?.as_str());
                let class = annotated.unwrap_or_else(|| text(object, "/spec/storageClassName"));
                let storage = object
                    .pointer("/spec/resources/requests/storage")
                    .and_then(quantity);
                let allocated = object
                    .pointer("/status/allocatedResources/storage")
                    .and_then(quantity);
                let storage = storage.map(|asked| allocated.map_or(asked, |a| a.max(asked)).rounded_up());
                if !class.is_empty() {
                    one(&format!("{class}{CLASS}persistentvolumeclaims"), single);
                }
                if let Some(storage) = storage {
                    one("requests.storage", storage);
                    if !class.is_empty() {
                        one(&format!("{class}{CLASS}requests.storage"), storage);
                    }
                }
            }
            Self::Others(group, resource) => {
                one(
                    &format!("count/{}", crate::status::qualified(group, resource)),
                    single,
                );
                if group.is_empty() {
                    one(resource, single);
                }
            }
        }
        used
    }

    /// Whether a request of this kind is looked at.
    fn handles(self, request: &Request, object: &Value) -> bool {
        let create = request.operation == Operation::Create;
        let update = request.operation == Operation::Update;
        let ends = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").is_some();
        match (self, request.subresource.as_str()) {
            (Self::Pods, "") => {
                create
                    || (update
                        && request
                            .old_object
                            .as_ref()
                            .is_some_and(|old| ends(old) != ends(object)))
            }
            (Self::Services | Self::Claims, "") => create || update,
            (Self::Others(..), "") => create,
            _ => false,
        }
    }

    /// Whether a quota is about such an object.
    fn matches(self, quota: &Value, object: &Value) -> bool {
        let scopes = quota.pointer("/spec/scopes").and_then(Value::as_array);
        let mut scopes = scopes.into_iter().flatten().filter_map(Value::as_str);
        let selectors = quota
            .pointer("/spec/scopeSelector/matchExpressions")
            .and_then(Value::as_array);
        let mut selectors = selectors.into_iter().flatten();
        scopes.all(|scope| self.in_scope(scope, "Exists", &Value::Null, object))
            && selectors.all(|selector| {
                self.in_scope(
                    text(selector, "/scopeName"),
                    text(selector, "/operator"),
                    selector.get("values").unwrap_or(&Value::Null),
                    object,
                )
            })
    }

    fn in_scope(self, scope: &str, operator: &str, values: &Value, object: &Value) -> bool {
        let class = |key: &str, name: &str| {
            if operator == "Exists" {
                return !name.is_empty();
            }
            let selector = serde_json::json!({
                "matchExpressions": [{ "key": key, "operator": operator, "values": values }],
            });
            let mut labels = serde_json::Map::new();
            if !name.is_empty() {
                labels.insert(key.to_owned(), name.into());
            }
            LabelSelector::from_object(Some(&selector)).is_ok_and(|s| s.matches(Some(&labels)))
        };
        let ends = || {
            object
                .pointer("/spec/activeDeadlineSeconds")
                .and_then(Value::as_i64)
                .is_some_and(|seconds| seconds >= 0)
        };
        let best_effort = || quality(object.get("spec").unwrap_or(&Value::Null)) == "BestEffort";
        match (self, scope) {
            (Self::Pods, "Terminating") => ends(),
            (Self::Pods, "NotTerminating") => !ends(),
            (Self::Pods, "BestEffort") => best_effort(),
            (Self::Pods, "NotBestEffort") => !best_effort(),
            (Self::Pods, "PriorityClass") => class(scope, text(object, "/spec/priorityClassName")),
            (Self::Pods, "CrossNamespacePodAffinity") => across_namespaces(object),
            (Self::Claims, "VolumeAttributesClass") => {
                class(scope, text(object, "/spec/volumeAttributesClassName"))
            }
            _ => false,
        }
    }
}

fn extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

fn across_namespaces(pod: &Value) -> bool {
    let list = |pointer: &str| {
        pod.pointer(pointer)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|affinity| {
        let at = format!("/spec/affinity/{affinity}");
        let required = list(&format!("{at}/requiredDuringSchedulingIgnoredDuringExecution"));
        let preferred = list(&format!("{at}/preferredDuringSchedulingIgnoredDuringExecution"));
        required
            .chain(preferred.filter_map(|term| term.get("podAffinityTerm")))
            .any(|term| {
                let named = term.get("namespaces").and_then(Value::as_array);
                named.is_some_and(|n| !n.is_empty()) || term.get("namespaceSelector").is_some()
            })
    })
}

/// Requests and limits under the names of quotas.
fn computed(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::new();
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = requests.get(name) {
            used.insert(name.to_owned(), *amount);
            used.insert(format!("requests.{name}"), *amount);
        }
        if let Some(amount) = limits.get(name) {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    for (name, amount) in requests {
        if name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
        if name.starts_with("hugepages-") || extended(name) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    used
}

/// What the containers of a pod leave open, if a quota needs it.
fn unsaid(limited: &[&String], pod: &Value) -> Option<String> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let whole = ["requests", "limits"]
        .iter()
        .any(|which| !amounts(spec, &format!("/resources/{which}")).is_empty());
    if whole {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in containers(spec) {
        let said = computed(
            &amounts(container, "/resources/requests"),
            &amounts(container, "/resources/limits"),
        );
        let open = limited
            .iter()
            .filter(|name| DEMANDED.contains(&name.as_str()) && !said.contains_key(**name));
        for name in open {
            missing.entry(name).or_default().insert(text(container, "/name"));
        }
    }
    let lines: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            format!(
                "{name} for: {}",
                containers.into_iter().collect::<Vec<_>>().join(",")
            )
        })
        .collect();
    (!lines.is_empty()).then(|| format!("must specify {}", lines.join("; ")))
}

fn shown(amounts: &Amounts, names: &[&String]) -> String {
    let all = amounts.iter().filter(|(name, _)| names.contains(name));
    all.map(|(name, amount)| format!("{name}={amount}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// What a request would make of `status.used` of the quotas of its namespace: the number of each that changes, and all it then
/// says. An error if it takes more than there is.
pub(crate) fn check(
    quotas: &[Value],
    request: &Request,
    object: &Value,
) -> Result<Vec<(usize, Amounts)>, Rejection> {
    let Some(kind) =
        Counted::of(&request.group, &request.resource).filter(|kind| kind.handles(request, object))
    else {
        return Ok(Vec::new());
    };
    let usage = kind.usage(object);
    let mut concerned = Vec::new();
    for (i, quota) in quotas.iter().enumerate() {
        let (hard, used) = (amounts(quota, "/status/hard"), amounts(quota, "/status/used"));
        let limited: Vec<&String> = hard.keys().filter(|name| kind.counts(name)).collect();
        if limited.is_empty() || !kind.matches(quota, object) {
            continue;
        }
        let name = text(quota, "/metadata/name");
        if kind == Counted::Pods
            && let Some(why) = unsaid(&limited, object)
        {
            return Err(request.forbidden(&format!("failed quota: {name}: {why}")));
        }
        if !limited.iter().all(|name| used.contains_key(*name)) {
            let names: Vec<&str> = limited.iter().map(|name| name.as_str()).collect();
            return Err(request.forbidden(&format!(
                "status unknown for quota: {name}, resources: {}",
                names.join(",")
            )));
        }
        concerned.push((i, quota, hard, used));
    }
    if concerned.is_empty() {
        return Ok(Vec::new());
    }
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, amount)| amount.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(request.forbidden(&format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )));
    }
    let mut out = Vec::new();
    for (i, quota, hard, used) in concerned {
        // Only what is new counts, if the quota was about the object before.
        let before = request
            .old_object
            .as_ref()
            .filter(|old| request.operation == Operation::Update && kind.matches(quota, old))
            .map(|old| kind.usage(old))
            .unwrap_or_default();
        let asked: Amounts = usage
            .iter()
            .map(|(name, amount)| {
                let had = before.get(name).copied().unwrap_or(Quantity::ZERO);
                (name.clone(), amount.minus(had))
            })
            .filter(|(name, amount)| hard.contains_key(name) && *amount > Quantity::ZERO)
            .collect();
        let mut after = used.clone();
        add(&mut after, &asked);
        let exceeded: Vec<&String> = asked
            .keys()
            .filter(|name| matches!((after.get(*name), hard.get(*name)), (Some(a), Some(h)) if a > h))
            .collect();
        if !exceeded.is_empty() {
            return Err(request.forbidden(&format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                text(quota, "/metadata/name"),
                shown(&asked, &exceeded),
                shown(&used, &exceeded),
                shown(&hard, &exceeded),
            )));
        }
        if !asked.is_empty() {
            out.push((i, after));
        }
    }
    Ok(out)
}

/// What a quota should say that is used, of all objects of the namespace by kind; nothing is said of names that no kind has.
pub(crate) fn count<'a>(
    quota: &Value,
    hard: &Amounts,
    kinds: impl Iterator<Item = (Counted<'a>, Vec<Value>)>,
) -> Amounts {
    let mut used = Amounts::new();
    for (kind, objects) in kinds {
        for name in hard.keys().filter(|name| kind.counts(name)) {
            used.entry(name.clone()).or_insert(Quantity::ZERO);
        }
        for object in objects.iter().filter(|object| kind.matches(quota, object)) {
            let usage = kind.usage(object);
            let masked = usage.into_iter().filter(|(name, _)| hard.contains_key(name));
            add(&mut used, &masked.collect());
        }
    }
    used
}

/// Whether a quota limits anything of a kind.
pub(crate) fn concerns(hard: &Amounts, kind: Counted<'_>) -> bool {
    hard.keys().any(|name| kind.counts(name))
}
