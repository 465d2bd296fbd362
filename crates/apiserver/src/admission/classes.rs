//! What objects of other kinds are given: the default class of claims and ingresses, the taint of a new node.

use serde_json::{Value, json};

use super::request::text;
use super::{Operation, Request, Source};
use crate::builtin::{INGRESS_CLASS, STORAGE_CLASS};

/// Completes a new object.
pub(super) fn mutate(source: &dyn Source, request: &Request, object: &mut Value) {
    if request.operation != Operation::Create || !request.subresource.is_empty() {
        return;
    }
    match (request.group.as_str(), request.resource.as_str()) {
        ("", "persistentvolumeclaims") => {
            let defaults = [
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ];
            let classes = ("storage.k8s.io", "storageclasses");
            class(
                source,
                object,
                "storageClassName",
                STORAGE_CLASS,
                classes,
                &defaults,
            );
        }
        ("networking.k8s.io", "ingresses") => {
            let defaults = ["ingressclass.kubernetes.io/is-default-class"];
            let classes = ("networking.k8s.io", "ingressclasses");
            class(
                source,
                object,
                "ingressClassName",
                INGRESS_CLASS,
                classes,
                &defaults,
            );
        }
        ("", "nodes") => not_ready(object),
        _ => {}
    }
}

/// The class of a claim; an annotation has precedence.
pub(super) fn of_claim(claim: &Value) -> &str {
    annotation(claim, STORAGE_CLASS).unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

/// The newest default class; of two that are equally old, the first by name.
fn class(
    source: &dyn Source,
    object: &mut Value,
    field: &str,
    older: &str,
    (group, plural): (&str, &str),
    defaults: &[&str],
) {
    let given = object.get("spec").and_then(|spec| spec.get(field));
    if given.is_some_and(|given| !given.is_null()) || annotation(object, older).is_some() {
        return;
    }
    let is_default = |class: &Value| {
        defaults
            .iter()
            .any(|name| annotation(class, name) == Some("true"))
    };
    let mut classes = source.list(group, plural);
    classes.retain(|class| is_default(class));
    classes.sort_by(|a, b| {
        let made = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
        let name = |class: &Value| text(class, "/metadata/name").to_owned();
        made(b).cmp(&made(a)).then_with(|| name(a).cmp(&name(b)))
    });
    let Some(map) = object.as_object_mut() else { return };
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    if let (Some(class), Some(spec)) = (classes.first(), spec.as_object_mut()) {
        spec.insert(field.into(), text(class, "/metadata/name").into());
    }
}

/// A node is not ready before its kubelet says so.
fn not_ready(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let Some(map) = node.as_object_mut() else { return };
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    let Some(taints) = taints.as_array_mut() else {
        return;
    };
    let there = |taint: &Value| text(taint, "/key") == KEY && text(taint, "/effect") == "NoSchedule";
    if !taints.iter().any(there) {
        taints.push(json!({ "key": KEY, "effect": "NoSchedule" }));
    }
}
