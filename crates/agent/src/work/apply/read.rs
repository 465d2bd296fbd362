//! Reads one object, and makes sure that the server answered with that object.

use std::time::Duration;

use kube::{Client, core::DynamicObject};

use crate::work::model::TargetObject;

/// How long a read, or a recreation, may take: it holds one of the turns that all works share.
pub const WITHIN: Duration = Duration::from_secs(30);

/// The object that a manifest names, if it exists. Any other answer is an error: the gate judged this object.
pub async fn read(client: &Client, target: &TargetObject) -> Result<Option<DynamicObject>, kube::Error> {
    let error = |problem: String| {
        let resource = &target.kind.resource;
        let what = format!("read {} {}: {problem}", resource.kind, target.name);
        kube::Error::Service(what.into())
    };
    let api = target.kind.api(client, &target.namespace);
    let live = match tokio::time::timeout(WITHIN, api.get_opt(&target.name)).await {
        Ok(live) => live?,
        Err(_) => return Err(error(format!("no answer within {} s", WITHIN.as_secs()))),
    };
    if live.as_ref().is_some_and(|live| !is_target(target, live)) {
        return Err(error("the server answered with another object".into()));
    }
    Ok(live)
}

/// Whether an object is the one that the manifest names.
fn is_target(target: &TargetObject, live: &DynamicObject) -> bool {
    let kind = live.types.as_ref().map(|types| types.kind.as_str());
    let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
    kind.is_none_or(|kind| kind == target.kind.resource.kind)
        && live.metadata.name.as_deref() == Some(&target.name)
        && namespace == target.namespace
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::{Value, json};
    use writ_controller::ServedKind;

    use super::*;
    use crate::work::plan;

    #[test]
    fn answer_with_another_object_is_refused() {
        let gvk = GroupVersionKind::gvk("", "v1", "Secret");
        let kind = ServedKind {
            resource: ApiResource::from_gvk_with_plural(&gvk, "secrets"),
            namespaced: true,
        };
        let wanted =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}});
        let spec = serde_json::from_value(json!({"workload": {"manifests": [wanted]}})).unwrap();
        let manifests = plan::manifests(&spec, &[(gvk, Ok(Some(kind.into())))].into());
        let target = manifests[0].target.as_ref().unwrap();
        for (change, is_same) in [
            (json!({}), true),
            (json!({"data": {"k": "v"}}), true),
            (
                json!({"kind": "SecretList", "metadata": {"name": null, "namespace": null}}),
                false,
            ),
            (json!({"kind": "ConfigMap"}), false),
            (json!({"metadata": {"name": "b"}}), false),
            (json!({"metadata": {"namespace": "m"}}), false),
        ] {
            let mut live = wanted.clone();
            merge(&mut live, &change);
            let live: DynamicObject = serde_json::from_value(live).unwrap();
            assert_eq!(is_target(target, &live), is_same, "{change}");
        }
    }

    fn merge(into: &mut Value, change: &Value) {
        for (key, value) in change.as_object().unwrap() {
            if value.is_object() && into[key].is_object() {
                merge(&mut into[key], value);
            } else {
                into[key] = value.clone();
            }
        }
    }
}
