//! Pods: of one that is there, only little may change.

use serde_json::{Value, json};

use super::workloads::{copy, pod_spec};
use super::{list, text};
use crate::schema::{Cause, child, index};

const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A pod as it would be if a change were only of what may change.
fn with_changeable(old: &Value, new: &Value) -> Value {
    let mut spec = old.clone();
    for field in ["containers", "initContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        let newer = list(new, &format!("/{field}"));
        for (container, newer) in containers.into_iter().flatten().zip(newer) {
            copy(container, newer, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates"] {
        copy(&mut spec, new, field);
    }
    if is_gated(old) {
        copy(&mut spec, new, "nodeSelector");
        copy_node_affinity(&mut spec, new);
    }
    copy(&mut spec, new, "tolerations");
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(new) == Some(1) {
        copy(&mut spec, new, "terminationGracePeriodSeconds");
    }
    spec
}

pub(super) fn pod(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = |pod: &Value| pod.get("spec").cloned().unwrap_or_default();
    let Some(old) = old else {
        let mut causes = pod_spec(&spec(new), "spec");
        let debugged = new.pointer("/spec/ephemeralContainers").and_then(Value::as_array);
        if debugged.is_some_and(|containers| !containers.is_empty()) {
            causes.push(Cause::forbidden(
                "spec.ephemeralContainers",
                "cannot be set on create",
            ));
        }
        if is_gated(&spec(new)) && !text(new, "/spec/nodeName").is_empty() {
            causes.push(Cause::forbidden(
                "spec.nodeName",
                "cannot be set until all schedulingGates have been cleared",
            ));
        }
        return causes;
    };
    let (old, new) = (spec(old), spec(new));
    let mut causes = Vec::new();
    // What did not change was good when it was new.
    if old != new {
        causes.extend(pod_spec(&new, "spec"));
        let count = |spec: &Value, field: &str| list(spec, &format!("/{field}")).len();
        let other = ["containers", "initContainers"]
            .into_iter()
            .find(|field| count(&old, field) != count(&new, field));
        if let Some(field) = other {
            let detail = "pod updates may not add or remove containers";
            causes.push(Cause::forbidden(child("spec", field), detail));
            return causes;
        }
        causes.extend(images(&new));
        if let Some(late) = deadline(&new, &old) {
            causes.push(late);
            if new.get("activeDeadlineSeconds").is_some() {
                return causes;
            }
        }
        if !tolerates_as_before(&new, &old) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            causes.push(Cause::forbidden("spec.tolerations", detail));
        }
        causes.extend(gates(&new, &old));
        if with_changeable(&old, &new) != new {
            causes.push(Cause::forbidden("spec", CHANGEABLE));
        }
    }
    causes
}

/// What was tolerated still is, for another while perhaps.
fn tolerates_as_before(new: &Value, old: &Value) -> bool {
    let but_for_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(toleration) = toleration.as_object_mut() {
            toleration.remove("tolerationSeconds");
        }
        toleration
    };
    let after: Vec<Value> = list(new, "/tolerations").iter().map(but_for_time).collect();
    let mut before = list(old, "/tolerations").iter().map(but_for_time);
    before.all(|toleration| after.contains(&toleration))
}

fn is_gated(spec: &Value) -> bool {
    !list(spec, "/schedulingGates").is_empty()
}

/// Makes the affinity to nodes what it is elsewhere, and leaves that to pods.
fn copy_node_affinity(into: &mut Value, from: &Value) {
    let wanted = from.pointer("/affinity/nodeAffinity").cloned();
    let alone = |spec: &Value| {
        let affinity = spec.get("affinity").and_then(Value::as_object);
        affinity.is_none_or(|affinity| affinity.keys().all(|name| name == "nodeAffinity"))
    };
    if alone(into) && alone(from) {
        return copy(into, from, "affinity");
    }
    if let Some(spec) = into.as_object_mut() {
        let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
        match (affinity.as_object_mut(), wanted) {
            (Some(affinity), Some(wanted)) => drop(affinity.insert("nodeAffinity".into(), wanted)),
            (Some(affinity), None) => drop(affinity.remove("nodeAffinity")),
            (None, _) => {}
        }
    }
}

fn images(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["containers", "initContainers"] {
        for (i, container) in list(spec, &format!("/{field}")).iter().enumerate() {
            let image = text(container, "/image");
            if image.trim() != image {
                let path = child(&index(&child("spec", field), i), "image");
                let detail = "must not have leading or trailing whitespace";
                causes.push(Cause::invalid(path, &image.into(), detail));
            }
        }
    }
    causes
}

/// A pod that has an end may end earlier.
fn deadline(new: &Value, old: &Value) -> Option<Cause> {
    const NAME: &str = "activeDeadlineSeconds";
    let of = |spec: &Value| spec.get(NAME).and_then(Value::as_i64);
    let detail = match (of(new), of(old)) {
        (Some(after), _) if !(0..=i64::from(i32::MAX)).contains(&after) => {
            "must be between 0 and 2147483647, inclusive"
        }
        (Some(after), Some(before)) if after > before => "must be less than or equal to previous value",
        (None, Some(_)) => "must not update from a positive integer to nil value",
        _ => return None,
    };
    let shown = new.get(NAME).unwrap_or(&Value::Null);
    Some(Cause::invalid(child("spec", NAME), shown, detail))
}

/// What keeps a pod from nodes may only go; meanwhile it may be told more of where it may go.
fn gates(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let known = list(old, "/schedulingGates");
    for (i, gate) in list(new, "/schedulingGates").iter().enumerate() {
        let name = text(gate, "/name");
        if !known.iter().any(|gate| text(gate, "/name") == name) {
            let path = child(&index("spec.schedulingGates", i), "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            causes.push(Cause::forbidden(path, &detail));
        }
    }
    if known.is_empty() {
        return causes;
    }
    let selector = |spec: &Value| spec.get("nodeSelector").cloned().unwrap_or_default();
    let (after, before) = (selector(new), selector(old));
    let mut kept = before.as_object().into_iter().flatten();
    if !kept.all(|(key, value)| after.get(key) == Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        causes.push(Cause::invalid("spec.nodeSelector", &after, detail));
    }
    causes.extend(terms(new, old));
    causes
}

/// Terms of an affinity to nodes may become stricter.
fn terms(new: &Value, old: &Value) -> Vec<Cause> {
    const PLACE: &str =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let path = format!("spec{}", PLACE.replace('/', "."));
    let (after, before) = (list(new, PLACE), list(old, PLACE));
    if before.is_empty() {
        return Vec::new();
    }
    if after.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return vec![Cause::invalid(path, &after.to_vec().into(), detail)];
    }
    let grows = |after: &Value, before: &Value| {
        let fields = ["/matchExpressions", "/matchFields"];
        let is_empty = |term: &Value| fields.iter().all(|field| list(term, field).is_empty());
        (is_empty(after) || !is_empty(before))
            && fields
                .iter()
                .all(|field| list(after, field).starts_with(list(before, field)))
    };
    let pairs = after.iter().zip(before).enumerate();
    pairs
        .filter(|(_, (after, before))| !grows(after, before))
        .map(|(i, (after, _))| {
            let detail = "only additions are allowed (no mutations or deletions)";
            Cause::invalid(index(&path, i), after, detail)
        })
        .collect()
}
