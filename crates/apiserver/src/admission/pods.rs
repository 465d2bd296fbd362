//! What the real server's built-in plugins add: finalizers to volumes and claims, and to every new pod a service account, a priority,
//! tolerations for the first minutes of a node's trouble.

use serde_json::{Value, json};

use super::request::text;
use super::{Operation, Rejection, Request, Source, accounts, priority, topology};
use crate::status::Failure;

/// Completes a new pod.
pub(super) fn mutate(source: &dyn Source, request: &Request, object: &mut Value) -> Result<(), Rejection> {
    if request.operation == Operation::Create && request.group.is_empty() && request.subresource.is_empty() {
        match request.resource.as_str() {
            "persistentvolumeclaims" => protect(object, "kubernetes.io/pvc-protection"),
            "persistentvolumes" => protect(object, "kubernetes.io/pv-protection"),
            _ => {}
        }
    }
    let pod = request.group.is_empty() && request.resource == "pods" && request.subresource.is_empty();
    match request.operation {
        Operation::Create if pod => {
            accounts::mutate(source, request, object)?;
            priority::create(source, request, object)?;
            tolerations(object);
            topology::label(source, object);
            runtime_class(request, object)
        }
        Operation::Update if pod => {
            if let Some(old) = &request.old_object {
                priority::update(old, object);
            }
            tolerations(object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// There are no runtime classes here, so every one is missing.
fn runtime_class(request: &Request, pod: &Value) -> Result<(), Rejection> {
    match pod.pointer("/spec/runtimeClassName").and_then(Value::as_str) {
        None => Ok(()),
        Some("") => Err(Failure::new(500, "", "resource name may not be empty").into()),
        Some(name) => Err(request.forbidden(&format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// What only a runtime class may say.
pub(super) fn validate(request: &Request, object: Option<&Value>) -> Result<(), Rejection> {
    let pod = request.group.is_empty() && request.resource == "pods" && request.subresource.is_empty();
    let overhead = object
        .and_then(|object| object.pointer("/spec/overhead"))
        .and_then(Value::as_object);
    if pod && request.operation == Operation::Create && overhead.is_some_and(|overhead| !overhead.is_empty())
    {
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return Err(request.forbidden(why));
    }
    Ok(())
}

fn protect(object: &mut Value, finalizer: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.into());
    }
}

fn tolerations(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|t| {
            (text(t, "/key").is_empty() || text(t, "/key") == key)
                && matches!(text(t, "/effect"), "" | "NoExecute")
        });
        if !tolerated {
            list.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}
