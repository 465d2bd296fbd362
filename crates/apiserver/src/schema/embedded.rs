//! Objects inside of custom resources: their `apiVersion`, `kind` and `metadata` are those of an object.

use serde_json::{Map, Value};

use super::cause::{Cause, child, index, key};
use super::meta::{NameRule, decode_error, text, validate_create};
use super::node::{Additional, Arena, NodeId};
use super::prune::metadata_form;
use super::{Schema, names};

impl Schema {
    /// What a typed decoder would refuse in an embedded object, described as it would.
    pub(crate) fn embedded_error(&self, value: &Value) -> Option<String> {
        let places = places(self, value);
        let mut causes = places
            .iter()
            .flat_map(|place| untyped(place.of(value), &place.path));
        causes
            .next()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
    }
}

/// Validates embedded objects below the root of a custom resource.
pub(super) fn validate(schema: &Schema, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for place in places(schema, value) {
        let (object, path) = (place.of(value), &place.path);
        let untyped = untyped(object, path);
        identity(object, path, &mut causes);
        if untyped.is_empty() {
            metadata(object, path, &mut causes);
        }
        causes.extend(untyped);
    }
    causes
}

/// Gives the metadata of embedded objects the form of metadata, and answers what had to be dropped.
pub(super) fn settle(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    for place in places(schema, value) {
        let path = child(&place.path, "metadata");
        match value.pointer_mut(&format!("{}/metadata", place.pointer)) {
            Some(metadata @ Value::Null) => *metadata = Value::Object(Map::new()),
            Some(metadata @ Value::Object(_)) => dropped.extend(metadata_form(metadata, &path)),
            _ => {}
        }
    }
    dropped
}

/// Where an embedded object is.
struct Place {
    pointer: String,
    path: String,
}

impl Place {
    fn of<'a>(&self, root: &'a Value) -> &'a Value {
        root.pointer(&self.pointer).unwrap_or(&Value::Null)
    }
}

fn places(schema: &Schema, value: &Value) -> Vec<Place> {
    let mut found = Vec::new();
    find(
        &schema.arena,
        schema.root,
        value,
        (String::new(), String::new()),
        &mut found,
    );
    found
}

fn find(arena: &Arena, id: NodeId, value: &Value, (pointer, path): (String, String), found: &mut Vec<Place>) {
    let node = arena.get(id);
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let below = || format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                if let Some(id) = node.property(name) {
                    find(arena, id, value, (below(), child(&path, name)), found);
                } else if let Additional::Schema(id) = node.additional {
                    find(arena, id, value, (below(), key(&path, name)), found);
                }
            }
            if node.embedded_resource {
                found.push(Place { pointer, path });
            }
        }
        Value::Array(list) => {
            let Some(items) = node.items else { return };
            for (i, item) in list.iter().enumerate() {
                find(
                    arena,
                    items,
                    item,
                    (format!("{pointer}/{i}"), index(&path, i)),
                    found,
                );
            }
        }
        _ => {}
    }
}

/// What has another type than it must have.
fn untyped(object: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name).filter(|value| !value.is_string()) {
            causes.push(Cause::invalid(child(path, name), value, "must be a string"));
        }
    }
    if let Some(metadata) = object.get("metadata")
        && let Some(error) = decode_error(metadata)
    {
        causes.push(Cause::invalid(child(path, "metadata"), metadata, &error));
    }
    causes
}

fn identity(object: &Value, path: &str, causes: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        let field = child(path, name);
        match object.get(name) {
            None => causes.push(Cause::required(field, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid(field, &"".into(), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    causes.push(Cause::invalid(field, &text.as_str().into(), &detail));
                }
            }
            Some(Value::String(text)) => {
                let problems = names::dns_1035_label(&text.to_lowercase());
                if !problems.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        problems.join(",")
                    );
                    causes.push(Cause::invalid(field, &text.as_str().into(), &detail));
                }
            }
            Some(_) => {}
        }
    }
}

fn metadata(object: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(mut meta) = object.get("metadata").filter(|meta| meta.is_object()).cloned() else {
        return;
    };
    if text(&meta, "name").is_empty()
        && let Some(map) = meta.as_object_mut()
    {
        map.insert("name".into(), "fakename".into());
    }
    let namespaced = !text(&meta, "namespace").is_empty();
    let path = child(path, "metadata");
    causes.extend(validate_create(&meta, namespaced, NameRule::PathSegment, &path));
}
