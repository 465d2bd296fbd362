//! What the real server's built-in plugins add: finalizers to volumes and claims, and to every new pod a service account, a priority,
//! tolerations for the first minutes of a node's trouble.

use serde_json::{Value, json};

use super::request::text;
use super::{Operation, Rejection, Request, Source};

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
    if !pod || request.operation != Operation::Create {
        return Ok(());
    }
    service_account(source, request, object)?;
    priority(source, request, object)?;
    tolerations(object);
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

fn service_account(source: &dyn Source, request: &Request, object: &mut Value) -> Result<(), Rejection> {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let name = match spec
        .get("serviceAccountName")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    spec.insert("serviceAccountName".into(), name.as_str().into());
    spec.insert("serviceAccount".into(), name.as_str().into());
    let Some(account) = source.get("", "serviceaccounts", &request.namespace, &name) else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {} not found",
            request.namespace,
            crate::schema::quote(&name)
        );
        return Err(request.forbidden(&why));
    };
    if let Some(secrets) = account
        .get("imagePullSecrets")
        .filter(|s| s.as_array().is_some_and(|s| !s.is_empty()))
    {
        spec.entry("imagePullSecrets").or_insert_with(|| secrets.clone());
    }
    Ok(())
}

fn priority(source: &dyn Source, request: &Request, object: &mut Value) -> Result<(), Rejection> {
    let class = text(object, "/spec/priorityClassName").to_owned();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let (value, policy) = match class.as_str() {
        "" => (json!(0), json!("PreemptLowerPriority")),
        "system-cluster-critical" => (json!(2_000_000_000), json!("PreemptLowerPriority")),
        "system-node-critical" => (json!(2_000_001_000), json!("PreemptLowerPriority")),
        name => {
            let Some(class) = source.get("scheduling.k8s.io", "priorityclasses", "", name) else {
                return Err(request.forbidden(&format!("no PriorityClass with name {name} was found")));
            };
            let policy = class
                .get("preemptionPolicy")
                .cloned()
                .unwrap_or_else(|| "PreemptLowerPriority".into());
            (class.get("value").cloned().unwrap_or_default(), policy)
        }
    };
    spec.insert("priority".into(), value);
    spec.entry("preemptionPolicy").or_insert(policy);
    Ok(())
}

fn tolerations(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|t| {
            matches!(text(t, "/key"), "")
                || text(t, "/key") == key && matches!(text(t, "/effect"), "" | "NoExecute")
        });
        if !tolerated {
            list.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}
