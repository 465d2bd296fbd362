//! What an object says: the values and the conditions that a work asks for. Pure.

mod feedback;
mod rules;

use kube::core::DynamicObject;
use serde_json::Value;
use writ_controller::condition::Wanted;

use super::{
    config::Config,
    status::{Content, FEEDBACK},
};

/// Where kubectl keeps the manifest that it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reads values and conditions from an object.
pub fn read(live: &DynamicObject, config: &Config) -> Content {
    if !config.reads_content() {
        return Content {
            values: Vec::new(),
            feedback: Wanted::new(FEEDBACK, true, "NoStatusFeedbackSynced", ""),
            rules: Vec::new(),
        };
    }
    let mut object = serde_json::to_value(live).unwrap_or_default();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    // What is in a Secret is never copied to the hub, nor what is in a list of anything.
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind.ends_with("List") && live.metadata.name.is_none() {
        object = Value::Null;
    } else if kind == "Secret"
        && let Some(secret) = object.as_object_mut()
    {
        secret.remove("data");
        secret.remove("stringData");
        // kubectl keeps a copy of what it was given.
        let annotations = secret
            .get_mut("metadata")
            .and_then(|metadata| metadata.get_mut("annotations"));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    let (values, feedback) = feedback::read(&object, &config.feedback);
    Content {
        values,
        feedback,
        rules: rules::evaluate(&object, &config.conditions),
    }
}
