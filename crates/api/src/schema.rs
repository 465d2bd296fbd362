//! What the derive cannot say about a definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// The fields that upstream stores as `null`, by kind.
const NULLABLE: [(&str, &[&str]); 3] = [
    ("ManagedCluster", &["timeAdded"]),
    // Not `override`: a rule looks into it, and a `null` there would be refused instead of stored.
    (
        "RepoSync",
        &["lastTransitionTime", "lastUpdate", "lastUpdateTime"],
    ),
    (
        "RootSync",
        &["lastTransitionTime", "lastUpdate", "lastUpdateTime", "override"],
    ),
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
            // Once for each version; a sync has five times in its status.
            let wanted = match kind {
                "ManagedCluster" => 1,
                "RepoSync" => 2 * 5,
                "RootSync" => 2 * 6,
                _ => 0,
            };
            assert_eq!(text.matches("\"nullable\":true").count(), wanted, "{kind}");
        }
    }
}
