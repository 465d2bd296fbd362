//! What the derive cannot say about a definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// Serves the one version of `crd` under more names. The schema is the same, so nothing needs conversion.
pub(super) fn also_served(mut crd: CustomResourceDefinition, versions: &[&str]) -> CustomResourceDefinition {
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

/// Lets an object leave its spec out, as upstream; the server then fills in `default`.
pub(super) fn with_default_spec(
    mut crd: CustomResourceDefinition,
    default: &Value,
) -> CustomResourceDefinition {
    for root in roots(&mut crd) {
        if let Some(required) = &mut root.required {
            required.retain(|field| field != "spec");
        }
        root.required = root.required.take().filter(|r| !r.is_empty());
        if let Some(spec) = root.properties.as_mut().and_then(|p| p.get_mut("spec")) {
            spec.default = Some(JSON(default.clone()));
        }
    }
    crd
}

/// Makes no field nullable, as upstream: the server then drops a `null` and puts the default in its place,
/// so that what is stored never has one. `timeAdded` is the one that upstream stores as `null`.
pub(super) fn without_null(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    roots(&mut crd).for_each(strip);
    crd
}

fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn strip(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for (name, property) in schema.properties.iter_mut().flatten() {
        strip(property);
        if name == "timeAdded" {
            property.nullable = Some(true);
        }
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => strip(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(strip),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        strip(values);
    }
}
