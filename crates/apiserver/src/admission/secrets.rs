//! Which secrets a pod may name.

use serde_json::Value;

use super::request::text;
use super::{Rejection, Request};
use crate::resources::containers;

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Where the volumes of a pod name secrets.
const IN_VOLUMES: [&str; 10] = [
    "/secret/secretName",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
];

/// Where a container refers to one: in what it calls a variable, or in the source of many. The name may be left out.
fn in_environment(container: &Value) -> impl Iterator<Item = (String, &str)> {
    let one = list(container, "/env").map(|env| {
        let what = format!("envVar {}", text(env, "/name"));
        (what, env.pointer("/valueFrom/secretKeyRef"))
    });
    let all = list(container, "/envFrom").map(|env| ("envFrom".to_owned(), env.get("secretRef")));
    one.chain(all)
        .filter_map(|(what, reference)| Some((what, reference.filter(|it| it.is_object())?)))
        .map(|(what, reference)| (what, text(reference, "/name")))
}

/// A pod that a kubelet made by itself must not depend on secrets that the server keeps.
pub(super) fn of_mirror(request: &Request, pod: &Value) -> Result<(), Rejection> {
    let refuse = |what: &str| Err(request.forbidden(&format!("a mirror pod may not {what}")));
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return refuse("reference service accounts");
    }
    let volumes = || list(pod, "/spec/volumes");
    let projected = || volumes().flat_map(|volume| list(volume, "/projected/sources"));
    let names_secret = list(pod, "/spec/imagePullSecrets").any(|pull| !text(pull, "/name").is_empty())
        || volumes().any(|volume| IN_VOLUMES.iter().any(|at| !text(volume, at).is_empty()))
        || projected().any(|source| !text(source, "/secret/name").is_empty())
        || containers(pod.get("spec").unwrap_or(&Value::Null))
            .any(|container| in_environment(container).any(|(_, name)| !name.is_empty()));
    if names_secret {
        return refuse("reference secrets");
    }
    if projected().any(|source| source.get("serviceAccountToken").is_some()) {
        return refuse("use ServiceAccountToken volume projections");
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
    for (kind, field) in [
        ("init container", "/spec/initContainers"),
        ("container", "/spec/containers"),
    ] {
        for container in list(pod, field) {
            if let Some((at, name)) = in_environment(container).find(|(_, name)| !has("/secrets", name)) {
                let container = text(container, "/name");
                let what = format!("{kind} {container} with {at} referencing secret.secretName={name:?}");
                return refuse(what, "secret");
            }
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
