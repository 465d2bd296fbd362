//! What pods ask for: amounts by the name of a resource.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts by name, such as `cpu`.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The amounts at a pointer; what is no quantity is left out.
pub(crate) fn amounts(value: &Value, pointer: &str) -> Amounts {
    let map = value.pointer(pointer).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?)))
        .collect()
}

/// A quantity as it may be written: a text or a number.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    }
}

/// Adds to each what the other has.
pub(crate) fn add(all: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let have = all.get(name).copied();
        all.insert(name.clone(), have.map_or(*amount, |have| have.plus(*amount)));
    }
}

fn raise(all: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if all.get(name).is_none_or(|have| amount > have) {
            all.insert(name.clone(), *amount);
        }
    }
}

fn list<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    spec.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a pod is the image of one that a kubelet runs by itself.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some()
}

/// All containers of a pod, the ordinary ones first.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    list(spec, "containers").chain(list(spec, "initContainers"))
}

/// What a pod needs at one time, of `requests` or `limits`: all its containers together, or an init container with those that
/// stay; what is set for the whole pod counts instead.
pub(crate) fn of_pod(spec: &Value, which: &str) -> Amounts {
    let pointer = format!("/resources/{which}");
    let mut all = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut all, &amounts(container, &pointer));
    }
    let (mut staying, mut most) = (Amounts::new(), Amounts::new());
    for container in list(spec, "initContainers") {
        let mut own = amounts(container, &pointer);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut all, &own);
            add(&mut staying, &own);
            raise(&mut most, &staying);
        } else {
            add(&mut own, &staying);
            raise(&mut most, &own);
        }
    }
    raise(&mut all, &most);
    for (name, amount) in amounts(spec, &pointer) {
        if matches!(name.as_str(), "cpu" | "memory") {
            all.insert(name, amount);
        }
    }
    all
}

/// How well a pod is served when a node runs short.
pub(crate) fn quality(spec: &Value) -> &'static str {
    let counted = |amounts: Amounts| -> Amounts {
        amounts
            .into_iter()
            .filter(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && *amount > Quantity::ZERO)
            .collect()
    };
    let own = ["requests", "limits"].map(|which| counted(amounts(spec, &format!("/resources/{which}"))));
    let whole = spec.get("resources").is_some_and(Value::is_object);
    let parts: Vec<[Amounts; 2]> = if whole {
        vec![own]
    } else {
        containers(spec)
            .map(|c| ["requests", "limits"].map(|which| counted(amounts(c, &format!("/resources/{which}")))))
            .collect()
    };
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut complete = true;
    for [request, limit] in &parts {
        add(&mut requests, request);
        add(&mut limits, limit);
        complete &= limit.len() == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if complete && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
