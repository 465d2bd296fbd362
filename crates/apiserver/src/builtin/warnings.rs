//! What is told to those who write an object that is taken all the same.

use serde_json::Value;

use super::Kind;

/// How the class of a claim was named before there was a field for it.
pub const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The same of an ingress.
pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

pub(super) fn of(kind: &Kind, object: &Value, is_new: bool) -> Vec<String> {
    let has = |annotation: &str| {
        let annotations = object.pointer("/metadata/annotations");
        annotations.is_some_and(|annotations| annotations.get(annotation).is_some())
    };
    match kind.kind {
        "PersistentVolumeClaim" if has(STORAGE_CLASS) => vec![format!(
            "metadata.annotations[{STORAGE_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        )],
        "Ingress" if is_new && has(INGRESS_CLASS) && object.pointer("/spec/ingressClassName").is_none() => {
            vec![format!(
                "annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"
            )]
        }
        "Service" => service(object),
        _ => Vec::new(),
    }
}

fn service(object: &Value) -> Vec<String> {
    let text = |name: &str| object.pointer(&format!("/spec/{name}")).and_then(Value::as_str);
    let outside = object.pointer("/spec/externalIPs").and_then(Value::as_array);
    let has_addresses = outside.is_some_and(|addresses| !addresses.is_empty());
    let is_headless = text("clusterIP") == Some("None");
    let is_named = text("type") == Some("ExternalName");
    let mut told: Vec<&str> = Vec::new();
    if is_headless && has_addresses {
        told.push("spec.externalIPs is ignored for headless services");
    }
    if is_headless && text("sessionAffinity") != Some("None") {
        told.push("spec.SessionAffinity is ignored for headless services");
    }
    if has_addresses && !is_headless && !is_named {
        told.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    if is_named && has_addresses {
        told.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if !is_named && text("externalName").is_some_and(|name| !name.is_empty()) {
        told.push("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if text("trafficDistribution") == Some("PreferClose") {
        told.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
    told.into_iter().map(str::to_owned).collect()
}
