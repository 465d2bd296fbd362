//! What the derive cannot say about a definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// The fields that upstream stores as `null`, by kind.
const NULLABLE: [(&str, &[&str]); 3] = [
    ("ManagedCluster", &["timeAdded"]),
    ("RepoSync", SYNC_NULLABLE),
    ("RootSync", SYNC_NULLABLE),
];
const SYNC_NULLABLE: &[&str] = &[
    "caCertSecretRef",
    "lastTransitionTime",
    "lastUpdate",
    "lastUpdateTime",
    "override",
    "secretRef",
];

/// The fields of a status that upstream fills in, by kind.
const FILLED_IN: [(&str, &str); 4] = [
    ("ClusterManagementAddOn", "group"),
    ("ManagedClusterAddOn", "group"),
    ("ManagedClusterAddOn", "mode"),
    ("Placement", "clusterCount"),
];

/// Serves the one version of `crd` under more names. The schema is the same, so nothing needs conversion.
pub(crate) fn also_served(mut crd: CustomResourceDefinition, versions: &[&str]) -> CustomResourceDefinition {
    if let Some(stored) = crd.spec.versions.first().cloned() {
        for version in versions {
            let mut other = stored.clone();
            (*version).clone_into(&mut other.name);
            other.storage = false;
            crd.spec.versions.push(other);
        }
    }
    crd
}

/// Lets an object leave its spec out, as upstream, where our types cannot do without: one that does counts as absent.
pub(crate) fn without_required_spec(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for root in roots(&mut crd) {
        if let Some(required) = &mut root.required {
            required.retain(|field| field != "spec");
        }
        root.required = root.required.take().filter(|r| !r.is_empty());
    }
    crd
}

/// Lets an object leave its spec out, as upstream; the server then fills in `default`.
pub(crate) fn with_default_spec(crd: CustomResourceDefinition, default: &Value) -> CustomResourceDefinition {
    let mut crd = without_required_spec(crd);
    for root in roots(&mut crd) {
        if let Some(spec) = root.properties.as_mut().and_then(|p| p.get_mut("spec")) {
            spec.default = Some(JSON(default.clone()));
        }
    }
    crd
}

/// Makes no field nullable but those that are [`NULLABLE`] upstream: the server then drops a `null` and puts the default
/// in its place, so that what is stored never has one. Charts write many of them.
pub(crate) fn without_null(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    let kept = NULLABLE.iter().find(|(of, _)| *of == kind);
    let kept = kept.map(|(_, fields)| *fields).unwrap_or_default();
    roots(&mut crd).for_each(|root| strip(root, kept));
    crd
}

/// Fills in nothing of a status but what upstream does: what is stored is what was reported. Our types read what is
/// absent as empty, and the derive would make that a default of the definition.
pub(crate) fn without_status_defaults(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    for root in roots(&mut crd) {
        if let Some(status) = root.properties.as_mut().and_then(|p| p.get_mut("status")) {
            forget_defaults(status, &kind);
        }
    }
    crd
}

fn forget_defaults(schema: &mut JSONSchemaProps, kind: &str) {
    for (name, property) in schema.properties.iter_mut().flatten() {
        forget_defaults(property, kind);
        if !FILLED_IN.contains(&(kind, name.as_str())) {
            property.default = None;
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forget_defaults(items, kind);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        forget_defaults(values, kind);
    }
}

fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn strip(schema: &mut JSONSchemaProps, kept: &[&str]) {
    schema.nullable = None;
    for (name, property) in schema.properties.iter_mut().flatten() {
        strip(property, kept);
        if kept.contains(&name.as_str()) {
            property.nullable = Some(true);
        }
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => strip(items, kept),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(|items| strip(items, kept)),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        strip(values, kept);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_definition_stores_a_null_that_upstream_drops() {
        for crd in crate::crds() {
            let text = serde_json::to_string(crd).unwrap();
            let kind = crd.spec.names.kind.as_str();
            assert!(!text.contains("\"default\":null"), "{kind}");
            // Once for each version; a sync has five times in its status, and its source five Secrets.
            let wanted = match kind {
                "ManagedCluster" => 1,
                "RepoSync" | "RootSync" => 2 * (5 + 1 + 5),
                _ => 0,
            };
            assert_eq!(text.matches("\"nullable\":true").count(), wanted, "{kind}");
        }
    }

    #[test]
    fn a_status_is_stored_as_it_was_reported() {
        for crd in crate::crds() {
            let kind = crd.spec.names.kind.as_str();
            // A kind of configuration stands in two lists of each; a key of a list must be there or be filled in.
            let wanted = match kind {
                "ClusterManagementAddOn" => 2,
                "ManagedClusterAddOn" => 3,
                "Placement" => 1,
                _ => 0,
            };
            for version in &crd.spec.versions {
                let schema = serde_json::to_value(&version.schema).unwrap();
                let status = schema.pointer("/openAPIV3Schema/properties/status");
                let text = status.map(ToString::to_string).unwrap_or_default();
                assert_eq!(text.matches("\"default\":").count(), wanted, "{kind}");
            }
        }
    }
}
