//! Priority: the number behind a pod's PriorityClass, and that there is one default class at most.

use std::sync::Arc;

use serde_json::{Value, json};

use super::request::text;
use super::{Operation, Rejection, Request, Source};

/// What a pod without a class has, unless there is a default class.
const USUAL: &str = "PreemptLowerPriority";

/// The default class; the lowest, should there be several.
fn default_class(source: &dyn Source) -> Option<Arc<Value>> {
    let classes = source.list("scheduling.k8s.io", "priorityclasses").into_iter();
    classes
        .filter(|class| class.get("globalDefault") == Some(&Value::Bool(true)))
        .min_by_key(|class| class.get("value").and_then(Value::as_i64))
}

/// Gives a new pod the priority of its class.
pub(super) fn create(source: &dyn Source, request: &Request, pod: &mut Value) -> Result<(), Rejection> {
    let named = text(pod, "/spec/priorityClassName").to_owned();
    let class = match named.as_str() {
        "" => default_class(source),
        // A cluster begins with these two.
        "system-cluster-critical" => Some(Arc::new(json!({ "value": 2_000_000_000 }))),
        "system-node-critical" => Some(Arc::new(json!({ "value": 2_000_001_000 }))),
        name => match source.get("scheduling.k8s.io", "priorityclasses", "", name) {
            None => return Err(request.forbidden(&format!("no PriorityClass with name {name} was found"))),
            found => found,
        },
    };
    let part = |name: &str| class.as_ref().and_then(|class| class.get(name)).cloned();
    let priority = part("value").unwrap_or_else(|| 0.into());
    let policy = part("preemptionPolicy").unwrap_or_else(|| USUAL.into());
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    if let Some(name) = class.as_ref().map(|class| text(class, "/metadata/name"))
        && named.is_empty()
    {
        spec.insert("priorityClassName".into(), name.into());
    }
    for (field, said, wanted) in [
        ("priority", "the integer value of priority", priority),
        ("preemptionPolicy", "the string value of PreemptionPolicy", policy),
    ] {
        let given = spec.get(field).filter(|given| **given != wanted);
        if let Some(given) = given.filter(|given| !given.is_null()) {
            let shown = |value: &Value| value.to_string().trim_matches('"').to_owned();
            return Err(request.forbidden(&format!(
                "{said} ({}) must not be provided in pod spec; priority admission controller computed {} from the given \
                 PriorityClass name",
                shown(given),
                shown(&wanted)
            )));
        }
        spec.insert(field.into(), wanted);
    }
    Ok(())
}

/// A changed pod keeps what it was given.
pub(super) fn update(old: &Value, pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for field in ["priority", "preemptionPolicy"] {
        let before = old.get("spec").and_then(|spec| spec.get(field));
        if let Some(before) = before
            && spec.get(field).is_none_or(Value::is_null)
        {
            spec.insert(field.into(), before.clone());
        }
    }
}

/// Refuses a second default class.
pub(super) fn validate(
    source: &dyn Source,
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    let class = request.group == "scheduling.k8s.io" && request.resource == "priorityclasses";
    let wanted = object.filter(|object| object.get("globalDefault") == Some(&Value::Bool(true)));
    let Some(object) = wanted.filter(|_| class) else {
        return Ok(());
    };
    let Some(other) = default_class(source) else {
        return Ok(());
    };
    let name = text(&other, "/metadata/name");
    if request.operation == Operation::Update && name == text(object, "/metadata/name") {
        return Ok(());
    }
    let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(request.forbidden(&why))
}
