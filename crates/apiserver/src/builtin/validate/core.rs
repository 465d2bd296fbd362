//! Core kinds and leases.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{immutable, list, text};
use crate::schema::{Cause, child, index, key, names};

/// ConfigMaps and Secrets may not be larger.
const MAX_SIZE: usize = 1024 * 1024;

fn entries<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(name).and_then(Value::as_object).into_iter().flatten()
}

fn decoded_length(value: &Value) -> usize {
    value
        .as_str()
        .map_or(0, |text| STANDARD.decode(text).map_or(0, |bytes| bytes.len()))
}

fn frozen(new: &Value, old: Option<&Value>, fields: &[&str]) -> Vec<Cause> {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    let mut causes = Vec::new();
    let is = |object: &Value| object.get("immutable").and_then(Value::as_bool) == Some(true);
    let Some(old) = old.filter(|old| is(old)) else {
        return causes;
    };
    if !is(new) {
        causes.push(Cause::forbidden("immutable", DETAIL));
    }
    for field in fields {
        if new.get(*field) != old.get(*field) {
            causes.push(Cause::forbidden(*field, DETAIL));
        }
    }
    causes
}

pub(super) fn config_map(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = frozen(new, old, &["data", "binaryData"]);
    let mut size = 0;
    for (name, value) in entries(new, "data") {
        for problem in names::config_map_key(name) {
            causes.push(Cause::invalid(key("data", name), &name.as_str().into(), &problem));
        }
        if new.get("binaryData").is_some_and(|b| b.get(name).is_some()) {
            let detail = "duplicate of key present in binaryData";
            causes.push(Cause::invalid(key("data", name), &name.as_str().into(), detail));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (name, value) in entries(new, "binaryData") {
        for problem in names::config_map_key(name) {
            causes.push(Cause::invalid(
                key("binaryData", name),
                &name.as_str().into(),
                &problem,
            ));
        }
        size += decoded_length(value);
    }
    if size > MAX_SIZE {
        let mut cause = Cause::too_long("", i64::try_from(MAX_SIZE).unwrap_or(i64::MAX));
        cause.field = "[]".into();
        causes.push(cause);
    }
    causes
}

pub(super) fn secret(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    causes.extend(old.and_then(|old| immutable(new, old, "/type")));
    causes.extend(frozen(new, old, &["data"]));
    let mut size = 0;
    for (name, value) in entries(new, "data") {
        for problem in names::config_map_key(name) {
            causes.push(Cause::invalid(key("data", name), &name.as_str().into(), &problem));
        }
        size += decoded_length(value);
    }
    if size > MAX_SIZE {
        causes.push(Cause::too_long(
            "data",
            i64::try_from(MAX_SIZE).unwrap_or(i64::MAX),
        ));
    }
    let has = |name: &str| new.get("data").is_some_and(|d| d.get(name).is_some());
    let mut require = |name: &str| {
        if !has(name) {
            causes.push(Cause::required(key("data", name), ""));
        }
    };
    match text(new, "/type") {
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        "kubernetes.io/ssh-auth" => require("ssh-privatekey"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/dockercfg" => docker(new, ".dockercfg", &mut causes),
        "kubernetes.io/dockerconfigjson" => docker(new, ".dockerconfigjson", &mut causes),
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            let annotations = new.pointer("/metadata/annotations");
            if annotations
                .and_then(|a| a.get(name))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                causes.push(Cause::required(key("metadata.annotations", name), ""));
            }
        }
        _ => {}
    }
    causes
}

fn docker(secret: &Value, name: &str, causes: &mut Vec<Cause>) {
    let Some(value) = secret.get("data").and_then(|d| d.get(name)) else {
        causes.push(Cause::required(key("data", name), ""));
        return;
    };
    let bytes = STANDARD
        .decode(value.as_str().unwrap_or_default())
        .unwrap_or_default();
    if let Err(e) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        causes.push(Cause::invalid(
            key("data", name),
            &"<secret contents redacted>".into(),
            &e.to_string(),
        ));
    }
}

pub(super) fn namespace(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_some() {
        return causes;
    }
    for finalizer in list(new, "/spec/finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        for problem in names::qualified_name(name) {
            causes.push(Cause::invalid("spec.finalizers", finalizer, &problem));
        }
        causes.extend(kube_finalizer(finalizer, "spec.finalizers".into()));
    }
    causes
}

/// Finalizers of the typed kinds are well known or carry a domain.
pub(super) fn kube_finalizer(finalizer: &Value, path: String) -> Option<Cause> {
    let name = finalizer.as_str().unwrap_or_default();
    let known = name.contains('/') || matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
    (!known).then(|| {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        Cause::invalid(path, finalizer, detail)
    })
}

pub(super) fn lease(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let number = |name: &str| new.pointer(&format!("/spec/{name}")).and_then(Value::as_i64);
    if let Some(n) = number("leaseDurationSeconds").filter(|n| *n <= 0) {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            &n.into(),
            "must be greater than 0",
        ));
    }
    if let Some(n) = number("leaseTransitions").filter(|n| *n < 0) {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            &n.into(),
            "must be greater than or equal to 0",
        ));
    }
    let strategy = text(new, "/spec/strategy");
    if !text(new, "/spec/preferredHolder").is_empty() && strategy.is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        causes.push(Cause::forbidden("spec.preferredHolder", detail));
    }
    causes
}

pub(super) fn service(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ty = text(new, "/spec/type");
    if !matches!(ty, "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName") {
        let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        causes.push(Cause::not_supported("spec.type", &ty.into(), &types));
    }
    let ports = list(new, "/spec/ports");
    if ports.is_empty() && ty != "ExternalName" && text(new, "/spec/clusterIP") != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (i, port) in ports.iter().enumerate() {
        let path = index("spec.ports", i);
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        if !(1..=65535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(child(&path, "port"), &number.into(), detail));
        }
        if let Some(target) = port
            .get("targetPort")
            .and_then(Value::as_i64)
            .filter(|t| !(1..=65535).contains(t))
        {
            let detail = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(child(&path, "targetPort"), &target.into(), detail));
        }
        let name = text(port, "/name");
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(child(&path, "name"), ""));
        }
        let earlier = || ports.iter().take(i);
        if !name.is_empty() && earlier().any(|p| text(p, "/name") == name) {
            causes.push(Cause::duplicate(child(&path, "name"), &name.into()));
        }
        let same =
            |p: &&Value| p.get("port") == port.get("port") && p.get("protocol") == port.get("protocol");
        if earlier().any(|p| same(&p)) {
            let shown = serde_json::json!({"protocol": port.get("protocol"), "port": port.get("port")});
            causes.push(Cause::duplicate(path.as_str(), &shown));
        }
        let protocol = text(port, "/protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            causes.push(Cause::not_supported(
                child(&path, "protocol"),
                &protocol.into(),
                &["SCTP", "TCP", "UDP"],
            ));
        }
    }
    causes
}
