//! Defaults of core, RBAC, networking and extension kinds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{each, set, set_text};

pub(super) fn secret(object: &mut Value) {
    set_text(object, "/type", "Opaque");
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else {
        return;
    };
    if texts.is_empty() {
        return;
    }
    let data = map.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    if let Some(data) = data.as_object_mut() {
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
        }
    }
}

pub(super) fn namespace(object: &mut Value) {
    // The label is kept in step with the name, whatever the writer says.
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if name.is_empty() {
        return;
    }
    set(object, "/metadata/labels", json!({}));
    if let Some(labels) = object
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

pub(super) fn service(object: &mut Value) {
    set_text(object, "/spec/sessionAffinity", "None");
    set_text(object, "/spec/type", "ClusterIP");
    let ty = object
        .pointer("/spec/type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if object.pointer("/spec/sessionAffinity").and_then(Value::as_str) == Some("ClientIP") {
        set(
            object,
            "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            10800,
        );
    }
    each(object, "/spec/ports", |port| {
        set_text(port, "/protocol", "TCP");
        let target = port.get("port").cloned().unwrap_or_default();
        if matches!(port.get("targetPort").unwrap_or(&Value::Null), Value::Null)
            || port.get("targetPort") == Some(&json!(0))
        {
            port["targetPort"] = target;
        }
    });
    if ty != "ExternalName" {
        set(object, "/spec/internalTrafficPolicy", "Cluster");
    }
    if matches!(ty.as_str(), "NodePort" | "LoadBalancer") {
        set_text(object, "/spec/externalTrafficPolicy", "Cluster");
    }
    if ty == "LoadBalancer" {
        set(object, "/spec/allocateLoadBalancerNodePorts", true);
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn binding(object: &mut Value) {
    set_text(object, "/roleRef/apiGroup", RBAC);
    each(object, "/subjects", |subject| {
        if matches!(
            subject.get("kind").and_then(Value::as_str),
            Some("User" | "Group")
        ) {
            set_text(subject, "/apiGroup", RBAC);
        }
    });
}

pub(super) fn network_policy(object: &mut Value) {
    for pointer in ["/spec/ingress", "/spec/egress"] {
        each(object, pointer, |rule| {
            each(rule, "/ports", |port| set(port, "/protocol", "TCP"));
        });
    }
    if object
        .pointer("/spec/policyTypes")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        let egress = object
            .pointer("/spec/egress")
            .and_then(Value::as_array)
            .is_some_and(|e| !e.is_empty());
        let types = if egress {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        };
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("policyTypes".into(), types);
        }
    }
}

pub(super) fn crd(object: &mut Value) {
    let kind = object
        .pointer("/spec/names/kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !kind.is_empty() {
        set_text(object, "/spec/names/singular", &kind.to_lowercase());
        set_text(object, "/spec/names/listKind", &format!("{kind}List"));
    }
    if object.get("spec").is_some_and(Value::is_object) {
        set(object, "/spec/conversion/strategy", "None");
    }
    if object
        .pointer("/spec/conversion/webhook/clientConfig/service")
        .is_some_and(Value::is_object)
    {
        set(object, "/spec/conversion/webhook/clientConfig/service/port", 443);
    }
}
