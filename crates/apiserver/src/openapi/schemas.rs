//! The schemas of a resource, with everything they refer to.

use serde_json::{Map, Value, json};

use super::Flavor;
use crate::builtin;
use crate::controllers::CRDS;
use crate::registry::Resource;
use crate::state::State;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The name of a kind's schema: of a custom one, the group backwards.
pub(super) fn name(resource: &Resource, version: &str) -> String {
    resource
        .builtin
        .and_then(builtin::Kind::definition_name)
        .map_or_else(
            || {
                let group: Vec<&str> = resource.group.split('.').rev().collect();
                format!("{}.{version}.{}", group.join("."), resource.kind)
            },
            str::to_owned,
        )
}

/// Adds the schemas of one version of a resource.
pub(super) fn add(
    state: &State,
    flavor: Flavor,
    resource: &Resource,
    version: &str,
    all: &mut Map<String, Value>,
) {
    let name = name(resource, version);
    let kinds = json!([{ "group": resource.group, "version": version, "kind": resource.kind }]);
    let mut schema = if resource.builtin.is_some() {
        let Some(schema) = builtin::definitions().get(&name) else {
            return;
        };
        let mut schema = schema.clone();
        clean(flavor, &mut schema, all);
        schema
    } else {
        custom(state, flavor, resource, version, all)
    };
    let selectable = selectable(resource, version);
    if let Some(map) = schema.as_object_mut() {
        map.insert("x-kubernetes-group-version-kind".into(), kinds);
        map.extend(selectable.clone());
    }
    all.insert(name.clone(), schema);
    if resource.allows("list") {
        let mut list = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": { "type": "string" },
                "kind": { "type": "string" },
                "items": { "type": "array", "items": { "$ref": flavor.reference(&name) } },
                "metadata": { "$ref": flavor.reference(LIST_META) },
            },
            "x-kubernetes-group-version-kind":
                [{ "group": resource.group, "version": version, "kind": resource.list_kind }],
        });
        if let Some(map) = list.as_object_mut() {
            map.extend(selectable);
        }
        refer(flavor, LIST_META, all);
        all.insert(format!("{name}List"), list);
    }
}

/// The fields of a custom resource that selectors may name, as an extension.
fn selectable(resource: &Resource, version: &str) -> Option<(String, Value)> {
    let paths = &resource.version(version)?.selectable;
    let fields = paths
        .iter()
        .map(|path| json!({ "fieldPath": path.strip_prefix('.').unwrap_or(path) }));
    let fields: Vec<Value> = fields.collect();
    (!fields.is_empty()).then(|| ("x-kubernetes-selectable-fields".to_owned(), fields.into()))
}

fn custom(
    state: &State,
    flavor: Flavor,
    resource: &Resource,
    version: &str,
    all: &mut Map<String, Value>,
) -> Value {
    let crd = state
        .store
        .get(CRDS, &resource.table)
        .map(|object| object.value())
        .unwrap_or_default();
    let found = crd
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .and_then(|versions| {
            versions
                .iter()
                .find(|one| one.get("name").and_then(Value::as_str) == Some(version))
        });
    let mut schema = found
        .and_then(|version| version.pointer("/schema/openAPIV3Schema"))
        .cloned()
        .unwrap_or_else(|| json!({ "type": "object" }));
    if flavor == Flavor::V2 {
        // Readers of version 2 take fields that are named for all there are.
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
            refer(flavor, META, all);
            return json!({ "type": "object" });
        }
        reduce(&mut schema);
    }
    embed(flavor, &mut schema);
    if let Some(map) = schema.as_object_mut() {
        let properties = map.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            for name in ["apiVersion", "kind"] {
                properties
                    .entry(name)
                    .or_insert_with(|| json!({ "type": "string" }));
            }
            properties.insert("metadata".into(), json!({ "$ref": flavor.reference(META) }));
        }
    }
    refer(flavor, META, all);
    schema
}

/// Gives embedded resources what every resource has.
fn embed(flavor: Flavor, schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|inner| embed(flavor, inner));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name) {
            embed(flavor, inner);
        }
    }
    let is = |name: &str| map.get(name) == Some(&Value::Bool(true));
    // Readers of version 2 take fields that are named for all there are.
    let open = flavor == Flavor::V2 && is("x-kubernetes-preserve-unknown-fields");
    if open || !is("x-kubernetes-embedded-resource") {
        return;
    }
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion".into(), json!({ "type": "string" }));
        properties.insert("kind".into(), json!({ "type": "string" }));
        properties.insert("metadata".into(), json!({ "$ref": flavor.reference(META) }));
    }
    let required = map.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|have| have == name) {
                required.push(name.into());
            }
        }
    }
}

/// Adds a definition that something refers to.
fn refer(flavor: Flavor, name: &str, all: &mut Map<String, Value>) {
    if all.contains_key(name) {
        return;
    }
    let Some(schema) = builtin::definitions().get(name) else {
        all.insert(name.to_owned(), json!({ "type": "object" }));
        return;
    };
    // Marked before it is walked: definitions refer to themselves.
    all.insert(name.to_owned(), Value::Null);
    let mut schema = schema.clone();
    clean(flavor, &mut schema, all);
    all.insert(name.to_owned(), schema);
}

/// Completes references and drops what is only for us.
fn clean(flavor: Flavor, schema: &mut Value, all: &mut Map<String, Value>) {
    match schema {
        Value::Object(map) => {
            map.remove("x-go");
            if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && map.len() == 1 {
                map.clear();
                map.insert("format".into(), "int-or-string".into());
                match flavor {
                    Flavor::V2 => drop(map.insert("type".into(), "string".into())),
                    Flavor::V3 => drop(map.insert(
                        "oneOf".into(),
                        json!([{ "type": "integer" }, { "type": "string" }]),
                    )),
                }
                return;
            }
            if let Some(name) = map.get("$ref").and_then(Value::as_str).map(str::to_owned) {
                refer(flavor, &name, all);
                map.insert("$ref".into(), flavor.reference(&name).into());
            }
            map.values_mut().for_each(|value| clean(flavor, value, all));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| clean(flavor, value, all)),
        _ => {}
    }
}

/// Drops what version 2 cannot say.
fn reduce(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    let nullable = |schema: &Value| schema.get("nullable") == Some(&Value::Bool(true));
    // What may be null has no type, and need not be there.
    if map.get("nullable") == Some(&Value::Bool(true)) {
        for name in ["type", "items", "properties"] {
            map.remove(name);
        }
    }
    let properties = map.get("properties").and_then(Value::as_object);
    let optional: Vec<String> = properties
        .into_iter()
        .flatten()
        .filter(|(_, property)| nullable(property))
        .map(|(name, _)| name.clone())
        .collect();
    if let Some(required) = map.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !optional.iter().any(|optional| name == optional.as_str()));
        if required.is_empty() {
            map.remove("required");
        }
    }
    for name in ["oneOf", "anyOf", "allOf", "not", "nullable"] {
        map.remove(name);
    }
    let open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if open {
        map.remove("items");
        map.remove("properties");
    }
    let untyped = match map.get("type").and_then(Value::as_str) {
        Some("array") => !map.contains_key("items"),
        Some("object") => open,
        _ => false,
    };
    if untyped {
        map.remove("type");
    }
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(reduce);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name) {
            reduce(inner);
        }
    }
}
