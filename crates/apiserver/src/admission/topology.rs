//! Where a pod runs: the zone and the region of its node.

use serde_json::{Value, json};

use super::Source;
use super::request::text;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Gives a pod that is on a node the labels of that node, whatever the pod says itself.
pub(super) fn label(source: &dyn Source, pod: &mut Value) {
    let name = text(pod, "/spec/nodeName");
    if name.is_empty() {
        return;
    }
    let Some(node) = source.get("", "nodes", "", name) else {
        return;
    };
    let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    for label in LABELS {
        let Some(value) = node
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(label))
        else {
            continue;
        };
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(label.into(), value.clone());
        }
    }
}
