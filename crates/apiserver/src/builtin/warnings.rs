//! What is told to those who write an object that is taken all the same.

use serde_json::Value;

use super::Kind;

/// How the class of a claim was named before there was a field for it.
pub const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The same of an ingress.
pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

pub(super) fn of(kind: &Kind, object: &Value, is_new: bool) -> Option<String> {
    let has = |annotation: &str| {
        let annotations = object.pointer("/metadata/annotations");
        annotations.is_some_and(|annotations| annotations.get(annotation).is_some())
    };
    match kind.kind {
        "PersistentVolumeClaim" if has(STORAGE_CLASS) => Some(format!(
            "metadata.annotations[{STORAGE_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        )),
        "Ingress" if is_new && has(INGRESS_CLASS) && object.pointer("/spec/ingressClassName").is_none() => {
            Some(format!(
                "annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"
            ))
        }
        "Service" if object.pointer("/spec/trafficDistribution") == Some(&Value::from("PreferClose")) => {
            Some("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into())
        }
        _ => None,
    }
}
