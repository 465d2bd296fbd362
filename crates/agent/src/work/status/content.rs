//! Pure: the values and conditions that a work asks for, read from its object.

use kube::core::DynamicObject;
use serde_json::Value;
use writ_controller::condition::Wanted;

use super::{FEEDBACK, feedback::read_values, rules::evaluate_rules};
use crate::work::model::{ObjectConfig, ObjectContent};

/// The annotation in which kubectl keeps the manifest that it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reads values and conditions from an object.
pub fn read_content(live: &DynamicObject, config: &ObjectConfig) -> ObjectContent {
    if !config.reads_content() {
        return ObjectContent {
            values: Vec::new(),
            feedback: Wanted::new(FEEDBACK, true, "NoStatusFeedbackSynced", ""),
            rules: Vec::new(),
        };
    }
    let mut object = serde_json::to_value(live).unwrap_or_default();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    // The content of a Secret is never copied to the hub, nor that of a list, which may hold Secrets.
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind.ends_with("List") && live.metadata.name.is_none() {
        object = Value::Null;
    } else if kind == "Secret"
        && let Some(secret) = object.as_object_mut()
    {
        secret.remove("data");
        secret.remove("stringData");
        // A copy of the Secret.
        let annotations = secret
            .get_mut("metadata")
            .and_then(|metadata| metadata.get_mut("annotations"));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    let (values, feedback) = read_values(&object, &config.feedback);
    ObjectContent {
        values,
        feedback,
        rules: evaluate_rules(&object, &config.conditions),
    }
}
