//! The service account of a new pod: which it is, and what the pod gets from it.

use serde_json::{Value, json};

use super::request::text;
use super::{Operation, Rejection, Request, Source, secrets};
use crate::api::generate_name;
use crate::resources::is_mirror;

/// Where containers find the token, and what the volume that brings it there is called before a dash.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Gives a new pod an account, its token, and the secrets that it pulls images with.
pub(super) fn mutate(source: &dyn Source, request: &Request, pod: &mut Value) -> Result<(), Rejection> {
    // The kubelet compares a mirror with what it runs: nothing may be added.
    if is_mirror(pod) {
        return secrets::of_mirror(request, pod);
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let name = match spec.get("serviceAccountName").and_then(Value::as_str) {
        None | Some("") => "default".to_owned(),
        Some(name) => name.to_owned(),
    };
    spec.insert("serviceAccountName".into(), name.as_str().into());
    spec.insert("serviceAccount".into(), name.as_str().into());
    let account = find(source, request, &name)?;
    let wants_token = |of: &Value| of.get("automountServiceAccountToken").and_then(Value::as_bool);
    let Some(spec) = pod.get_mut("spec") else {
        return Ok(());
    };
    if wants_token(spec)
        .or_else(|| wants_token(&account))
        .unwrap_or(true)
    {
        mount_token(spec);
    }
    if secrets::list(spec, "/imagePullSecrets").next().is_none()
        && let Some(map) = spec.as_object_mut()
    {
        let secrets: Vec<Value> = secrets::list(&account, "/imagePullSecrets").cloned().collect();
        if !secrets.is_empty() {
            map.insert("imagePullSecrets".into(), secrets.into());
        }
    }
    secrets::of_account(request, &account, pod)
}

/// Webhooks may have changed what the account allows.
pub(super) fn validate(
    source: &dyn Source,
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    let is_new_pod = request.operation == Operation::Create
        && request.group.is_empty()
        && request.resource == "pods"
        && request.subresource.is_empty();
    let Some(pod) = object.filter(|_| is_new_pod) else {
        return Ok(());
    };
    if is_mirror(pod) {
        return secrets::of_mirror(request, pod);
    }
    match text(pod, "/spec/serviceAccountName") {
        "" => Err(request.forbidden("no service account specified")),
        name => secrets::of_account(request, &*find(source, request, name)?, pod),
    }
}

fn find(source: &dyn Source, request: &Request, name: &str) -> Result<std::sync::Arc<Value>, Rejection> {
    let account = source.get("", "serviceaccounts", &request.namespace, name);
    account.ok_or_else(|| {
        request.forbidden(&format!(
            "error looking up service account {}/{name}: serviceaccount {} not found",
            request.namespace,
            crate::schema::quote(name)
        ))
    })
}

/// Brings a token into all containers that have nothing else in its place.
fn mount_token(spec: &mut Value) {
    let brought = secrets::list(spec, "/volumes")
        .map(|volume| text(volume, "/name"))
        .find(|name| name.starts_with(TOKEN_VOLUME));
    let is_brought = brought.is_some();
    let name = brought.map_or_else(|| generate_name(TOKEN_VOLUME), str::to_owned);
    let mut is_needed = false;
    for field in ["initContainers", "containers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if secrets::list(container, "/volumeMounts").any(|mount| text(mount, "/mountPath") == TOKEN_PATH)
            {
                continue;
            }
            is_needed = true;
            push(
                container,
                "volumeMounts",
                json!({ "name": name, "readOnly": true, "mountPath": TOKEN_PATH }),
            );
        }
    }
    if is_needed && !is_brought {
        let sources = json!([
            // A little more than an hour: that is how one tells that nobody asked for this one.
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{
                "path": "namespace",
                "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
            }] } },
        ]);
        push(
            spec,
            "volumes",
            json!({ "name": name, "projected": { "defaultMode": 420, "sources": sources } }),
        );
    }
}

fn push(object: &mut Value, field: &str, item: Value) {
    let Some(map) = object.as_object_mut() else { return };
    let list = map.entry(field).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}
