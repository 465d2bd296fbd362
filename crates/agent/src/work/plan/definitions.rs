//! Kinds that a work defines itself, by a CustomResourceDefinition among its manifests.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;
use writ_controller::ServedKind;
use writ_runtime::segment;

/// How a CustomResourceDefinition will serve this kind. `None` if it defines another one, or if the server would refuse
/// it: what it says becomes part of a URL.
pub fn kind_from_definition(manifest: &Value, gvk: &GroupVersionKind) -> Option<ServedKind> {
    let spec = manifest.get("spec")?;
    let names = spec.get("names")?;
    let plural = names.get("plural")?.as_str()?;
    let full_name = format!("{plural}.{}", gvk.group);
    let is_plain = segment::is_label(plural)
        && segment::is_label(&gvk.version)
        && gvk.group.split('.').all(segment::is_label);
    if !is_plain
        || manifest.pointer("/metadata/name")? != full_name.as_str()
        || !manifest
            .get("apiVersion")?
            .as_str()?
            .starts_with("apiextensions.k8s.io/")
        || manifest.get("kind")? != "CustomResourceDefinition"
        || spec.get("group")? != gvk.group.as_str()
        || names.get("kind")? != gvk.kind.as_str()
    {
        return None;
    }
    let is_served = spec.get("versions")?.as_array()?.iter().any(|version| {
        version.get("name").and_then(Value::as_str) == Some(&gvk.version)
            && version.get("served").and_then(Value::as_bool) == Some(true)
    });
    is_served.then(|| ServedKind {
        resource: ApiResource::from_gvk_with_plural(gvk, plural),
        namespaced: spec.get("scope").and_then(Value::as_str) == Some("Namespaced"),
    })
}

/// The name of the definition of a kind.
pub fn definition_name(kind: &ServedKind) -> String {
    format!("{}.{}", kind.resource.plural, kind.resource.group)
}
