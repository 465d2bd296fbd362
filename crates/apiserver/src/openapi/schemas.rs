//! The schemas of a resource, with everything they refer to.

use serde_json::{Map, Value, json};

use super::Flavor;
use crate::builtin;
use crate::controllers::CRDS;
use crate::registry::Resource;
use crate::state::State;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const VERSION_SAID: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
    recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_SAID: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this \
    from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const EMBEDDED_VERSION_SAID: &str = "apiVersion defines the versioned schema of this representation of an object. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND_SAID: &str = "kind is a string value representing the type of this object. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const OBJECT_META_SAID: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_META_SAID: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The fields that every object and every list has, with what `kubectl explain` says of them.
fn what_all_have(flavor: Flavor, meta: &str, said: &str) -> [(String, Value); 3] {
    let reference = json!({ "$ref": flavor.reference(meta) });
    let mut metadata = match flavor {
        // Readers of version 3 look at nothing beside a reference.
        Flavor::V3 => json!({ "allOf": [reference] }),
        Flavor::V2 => reference,
    };
    describe(&mut metadata, said);
    [
        (
            "apiVersion".to_owned(),
            json!({ "description": VERSION_SAID, "type": "string" }),
        ),
        (
            "kind".to_owned(),
            json!({ "description": KIND_SAID, "type": "string" }),
        ),
        ("metadata".to_owned(), metadata),
    ]
}

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
        let list = list(flavor, resource, version, &name, selectable);
        refer(flavor, LIST_META, all);
        all.insert(format!("{name}List"), list);
    }
}

fn list(
    flavor: Flavor,
    resource: &Resource,
    version: &str,
    name: &str,
    selectable: Option<(String, Value)>,
) -> Value {
    let mut items = json!({ "type": "array", "items": { "$ref": flavor.reference(name) } });
    let mut list = json!({
        "type": "object",
        "required": ["items"],
        "x-kubernetes-group-version-kind":
            [{ "group": resource.group, "version": version, "kind": resource.list_kind }],
    });
    if resource.builtin.is_none() {
        let Resource {
            list_kind,
            kind,
            plural,
            ..
        } = resource;
        describe(&mut list, &format!("{list_kind} is a list of {kind}"));
        describe(&mut items, &format!("List of {plural}. More info: {CONVENTIONS}"));
    }
    if let Some(map) = list.as_object_mut() {
        let mut properties = Map::from_iter(what_all_have(flavor, LIST_META, LIST_META_SAID));
        properties.insert("items".into(), items);
        map.insert("properties".into(), properties.into());
        map.extend(selectable);
    }
    list
}

fn describe(schema: &mut Value, said: &str) {
    if let Some(map) = schema.as_object_mut() {
        map.insert("description".into(), said.into());
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
    complete(flavor, &mut schema);
    if let Some(map) = schema.as_object_mut() {
        let properties = map.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.extend(what_all_have(flavor, META, OBJECT_META_SAID));
        }
    }
    refer(flavor, META, all);
    schema
}

/// Says of a number that may be a text that it is one or the other, unless the definition says so itself.
fn say_either(map: &mut Map<String, Value>) {
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    let said = |schema: Option<&Value>| schema == Some(&either);
    let all = map.get("allOf").and_then(Value::as_array);
    let first = all.and_then(|all| all.first()?.get("anyOf"));
    if said(map.get("anyOf")) || said(first) {
        return;
    }
    if !map.contains_key("anyOf") {
        map.insert("anyOf".into(), either);
    } else if let Some(all) = map.entry("allOf").or_insert_with(|| json!([])).as_array_mut() {
        all.insert(0, json!({ "anyOf": either }));
    }
}

/// Gives embedded resources what every resource has, and says of all fields what their extensions mean.
fn complete(flavor: Flavor, schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|inner| complete(flavor, inner));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name) {
            complete(flavor, inner);
        }
    }
    if flavor == Flavor::V3 && map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        say_either(map);
    }
    let is = |name: &str| map.get(name) == Some(&Value::Bool(true));
    // Readers of version 2 take fields that are named for all there are.
    let open = flavor == Flavor::V2 && is("x-kubernetes-preserve-unknown-fields");
    if open || !is("x-kubernetes-embedded-resource") {
        return;
    }
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(what_all_have(flavor, META, OBJECT_META_SAID));
        for (name, said) in [
            ("apiVersion", EMBEDDED_VERSION_SAID),
            ("kind", EMBEDDED_KIND_SAID),
        ] {
            if let Some(field) = properties.get_mut(name) {
                describe(field, said);
            }
        }
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
