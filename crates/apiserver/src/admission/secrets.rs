//! Which secrets a pod may name.

use serde_json::Value;

use super::request::text;
use super::{Rejection, Request};
use crate::resources::containers;

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn spec(pod: &Value) -> &Value {
    pod.get("spec").unwrap_or(&Value::Null)
}

/// Names of what the environments of all containers take from a secret or config map.
fn environments<'a>(pod: &'a Value, one: &'a str, all: &'a str) -> impl Iterator<Item = &'a str> {
    containers(spec(pod)).flat_map(move |container| {
        let single = list(container, "/env").map(move |env| text(env, one));
        single.chain(list(container, "/envFrom").map(move |env| text(env, all)))
    })
}

/// A pod that a kubelet made by itself must not depend on what the server keeps.
pub(super) fn of_mirror(request: &Request, pod: &Value) -> Result<(), Rejection> {
    let refuse = |what: &str| Err(request.forbidden(&format!("a mirror pod may not reference {what}")));
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return refuse("service accounts");
    }
    let volumes = |kind: &str| list(pod, "/spec/volumes").any(|volume| volume.get(kind).is_some());
    let projected = |kind: &str| {
        let mut sources = list(pod, "/spec/volumes").flat_map(|volume| list(volume, "/projected/sources"));
        sources.any(|source| source.get(kind).is_some())
    };
    let named = |one: &str, all: &str| environments(pod, one, all).any(|name| !name.is_empty());
    if list(pod, "/spec/imagePullSecrets").next().is_some()
        || volumes("secret")
        || projected("secret")
        || named("/valueFrom/secretKeyRef/name", "/secretRef/name")
    {
        return refuse("secrets");
    }
    if volumes("configMap")
        || projected("configMap")
        || named("/valueFrom/configMapKeyRef/name", "/configMapRef/name")
    {
        return refuse("configmaps");
    }
    if projected("serviceAccountToken") {
        return refuse("service account tokens");
    }
    if volumes("persistentVolumeClaim") {
        return refuse("persistentvolumeclaims");
    }
    Ok(())
}

/// An account may say that its pods use its own secrets alone.
pub(super) fn of_account(request: &Request, account: &Value, pod: &Value) -> Result<(), Rejection> {
    let enforced = account
        .pointer("/metadata/annotations/kubernetes.io~1enforce-mountable-secrets")
        .and_then(Value::as_str);
    if !matches!(enforced, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let has = |pointer: &str, name: &str| list(account, pointer).any(|own| text(own, "/name") == name);
    let owner = text(account, "/metadata/name");
    let refuse = |what: String, kind: &str| {
        let why =
            format!("{what} is not allowed because service account {owner} does not reference that {kind}");
        Err(request.forbidden(&why))
    };
    for volume in list(pod, "/spec/volumes").filter(|volume| volume.get("secret").is_some()) {
        let name = text(volume, "/secret/secretName");
        if !has("/secrets", name) {
            return refuse(format!("volume with secret.secretName={name:?}"), "secret");
        }
    }
    let single = environments(pod, "/valueFrom/secretKeyRef/name", "/none");
    for name in single.filter(|name| !name.is_empty()) {
        if !has("/secrets", name) {
            return refuse(format!("env with valueFrom.secretKeyRef.name={name:?}"), "secret");
        }
    }
    for (i, pull) in list(pod, "/spec/imagePullSecrets").enumerate() {
        let name = text(pull, "/name");
        if !has("/imagePullSecrets", name) {
            return refuse(format!("imagePullSecrets[{i}].name={name:?}"), "imagePullSecret");
        }
    }
    Ok(())
}
