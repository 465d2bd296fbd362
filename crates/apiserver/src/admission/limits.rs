//! LimitRanger: what a namespace's LimitRanges give to new pods, and what they refuse.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::request::text;
use super::{Operation, Rejection, Request, Source};
use crate::quantity::Quantity;
use crate::resources::{Amounts, amounts, containers, of_pod, quantity};

/// Where it says what it set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Up to this many ones, thousandths are compared.
const COUNTABLE: i128 = ((1u64 << 63) - 1) as i128 / 1000;

fn is(request: &Request, resource: &str) -> bool {
    request.group.is_empty() && request.resource == resource && request.subresource.is_empty()
}

fn limits(range: &Value) -> impl Iterator<Item = &Value> {
    let list = range.pointer("/spec/limits").and_then(Value::as_array);
    list.into_iter().flatten()
}

/// Gives the containers of a new pod what they did not ask for.
pub(super) fn mutate(source: &dyn Source, request: &Request, pod: &mut Value) {
    if request.operation != Operation::Create || !is(request, "pods") {
        return;
    }
    for range in source.list_in("", "limitranges", &request.namespace) {
        let mut notes = Vec::new();
        for (field, what) in [("containers", "container"), ("initContainers", "init container")] {
            let list = pod
                .pointer_mut(&format!("/spec/{field}"))
                .and_then(Value::as_array_mut);
            for container in list.into_iter().flatten() {
                complete(container, &range, what, &mut notes);
            }
        }
        if !notes.is_empty()
            && let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut)
        {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                let note = format!("LimitRanger plugin set: {}", notes.join("; "));
                annotations.insert(ANNOTATION.into(), note.into());
            }
        }
    }
}

fn complete(container: &mut Value, range: &Value, what: &str, notes: &mut Vec<String>) {
    let name = text(container, "/name").to_owned();
    for (from, to, word) in [
        ("defaultRequest", "requests", "request"),
        ("default", "limits", "limit"),
    ] {
        let mut set = BTreeSet::new();
        for limit in limits(range).filter(|limit| text(limit, "/type") == "Container") {
            let given = limit.get(from).and_then(Value::as_object);
            for (resource, amount) in given.into_iter().flatten() {
                let Some(map) = container.as_object_mut() else {
                    return;
                };
                let resources = map.entry("resources").or_insert_with(|| json!({}));
                let Some(resources) = resources.as_object_mut() else {
                    return;
                };
                let amounts = resources.entry(to).or_insert_with(|| json!({}));
                let Some(amounts) = amounts.as_object_mut() else {
                    return;
                };
                // What a limit range says twice, it says last.
                if set.contains(resource) || !amounts.contains_key(resource) {
                    amounts.insert(resource.clone(), amount.clone());
                    set.insert(resource.clone());
                }
            }
        }
        if !set.is_empty() {
            let set: Vec<String> = set.into_iter().collect();
            notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
        }
    }
}

/// Refuses pods and claims that are too small or too large.
pub(super) fn validate(
    source: &dyn Source,
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    let (pods, claims) = (is(request, "pods"), is(request, "persistentvolumeclaims"));
    let Some(object) = object.filter(|_| pods || claims) else {
        return Ok(());
    };
    let old = request.old_object.as_ref();
    let relevant = match request.operation {
        Operation::Create => true,
        Operation::Update => claims && old.is_none_or(|o| o.pointer("/metadata/deletionTimestamp").is_none()),
        _ => false,
    };
    if !relevant {
        return Ok(());
    }
    for range in source.list_in("", "limitranges", &request.namespace) {
        let mut problems = Vec::new();
        for limit in limits(&range) {
            let ty = text(limit, "/type");
            let asked: Vec<(Amounts, Amounts)> = match ty {
                "Container" if pods => containers(object.get("spec").unwrap_or(&Value::Null))
                    .map(|c| (amounts(c, "/resources/requests"), amounts(c, "/resources/limits")))
                    .collect(),
                "Pod" if pods => {
                    let spec = object.get("spec").unwrap_or(&Value::Null);
                    vec![(of_pod(spec, "requests"), of_pod(spec, "limits"))]
                }
                "PersistentVolumeClaim" if claims => {
                    let requests = amounts(object, "/spec/resources/requests");
                    vec![(requests, Amounts::new())]
                }
                _ => Vec::new(),
            };
            for (requests, limits) in &asked {
                problems.extend(refusals(limit, ty, requests, limits));
            }
        }
        // Each is said once.
        let mut said: Vec<String> = Vec::new();
        for problem in problems {
            if !said.contains(&problem) {
                said.push(problem);
            }
        }
        match said.as_slice() {
            [] => {}
            [one] => return Err(request.forbidden(one)),
            many => return Err(request.forbidden(&format!("[{}]", many.join(", ")))),
        }
    }
    Ok(())
}

fn refusals(limit: &Value, ty: &str, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let bounds = |field: &str| -> Vec<(String, Quantity)> {
        let map = limit.get(field).and_then(Value::as_object);
        let all = map.into_iter().flatten();
        all.filter_map(|(name, bound)| Some((name.clone(), quantity(bound)?)))
            .collect()
    };
    let mut problems = Vec::new();
    for (name, bound) in bounds("min") {
        problems.extend(too_small(
            ty,
            &name,
            bound,
            requests.get(&name),
            limits.get(&name),
        ));
    }
    for (name, bound) in bounds("max") {
        let found = if ty == "PersistentVolumeClaim" {
            too_large_request(ty, &name, bound, requests.get(&name))
        } else {
            too_large(ty, &name, bound, requests.get(&name), limits.get(&name))
        };
        problems.extend(found);
    }
    for (name, bound) in bounds("maxLimitRequestRatio") {
        problems.extend(too_far_apart(
            ty,
            &name,
            bound,
            requests.get(&name),
            limits.get(&name),
        ));
    }
    problems
}

fn too_small(
    ty: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let start = format!("minimum {name} usage per {ty} is {bound}");
    match (request, limit) {
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(request), _) if *request < bound => Some(format!("{start}, but request is {request}")),
        (_, Some(limit)) if *limit < bound => Some(format!("{start}, but limit is {limit}")),
        _ => None,
    }
}

fn too_large_request(ty: &str, name: &str, bound: Quantity, request: Option<&Quantity>) -> Option<String> {
    let start = format!("maximum {name} usage per {ty} is {bound}");
    match request {
        None => Some(format!("{start}.  No request is specified")),
        Some(request) if *request > bound => Some(format!("{start}, but request is {request}")),
        Some(_) => None,
    }
}

fn too_large(
    ty: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let start = format!("maximum {name} usage per {ty} is {bound}");
    match (limit, request) {
        (None, _) => Some(format!("{start}.  No limit is specified")),
        (Some(limit), _) if *limit > bound => Some(format!("{start}, but limit is {limit}")),
        (_, Some(request)) if *request > bound => Some(format!("{start}, but request is {request}")),
        _ => None,
    }
}

fn too_far_apart(
    ty: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {ty} is {bound}");
    let zero = |amount: Option<&Quantity>| amount.copied().filter(|a| !a.is_zero());
    let Some(request) = zero(request) else {
        return Some(format!("{start}, but no request is specified or request is 0"));
    };
    let Some(limit) = zero(limit) else {
        return Some(format!("{start}, but no limit is specified or limit is 0"));
    };
    let fine = [request, limit, bound].iter().all(|q| q.value() <= COUNTABLE);
    let number = |q: Quantity| if fine { q.milli() } else { q.value() };
    #[allow(
        clippy::cast_precision_loss,
        reason = "the real server divides such numbers, too"
    )]
    let ratio = number(limit) as f64 / number(request) as f64;
    #[allow(clippy::cast_precision_loss, reason = "as above")]
    let most = bound.milli() as f64 / 1000.0;
    (ratio > most).then(|| format!("{start}, but provided ratio is {ratio:.6}"))
}
