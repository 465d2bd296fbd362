//! A typed decoder takes a null item of a list or a map for an item of which nothing is said.

use serde_json::{Map, Value};

use super::Schema;
use super::node::{Additional, Arena, Node, NodeId, Type};
use super::normalize::is_quantity;

impl Schema {
    /// Gives null items of lists and maps the value that they have in the real server's types. Fields that are null are
    /// not given, which is for [`Schema::normalize`] to see.
    pub fn fill_nulls(&self, object: &mut Value) {
        // Nearly no object has one, and to look needs no schema.
        if has_null(object) {
            fill(&self.arena, object, self.root);
        }
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().any(has_null),
        Value::Array(list) => list.iter().any(has_null),
        _ => false,
    }
}

fn fill(arena: &Arena, value: &mut Value, id: NodeId) {
    let node = arena.get(id);
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if let Some(id) = node.property(name) {
                    fill(arena, value, id);
                } else if let Additional::Schema(id) = node.additional {
                    fill_item(arena, value, id);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = node.items else { return };
            for item in list {
                fill_item(arena, item, items);
            }
        }
        _ => {}
    }
}

fn fill_item(arena: &Arena, item: &mut Value, id: NodeId) {
    if item.is_null()
        && let Some(zero) = zero(arena.get(id))
    {
        *item = zero;
    }
    fill(arena, item, id);
}

/// The value of an item of which nothing is said; none for those that can be null themselves.
fn zero(node: &Node) -> Option<Value> {
    let format = node.checks.as_deref().and_then(|checks| checks.format.as_deref());
    match node.ty {
        _ if node.preserve_unknown || node.int_or_string => None,
        Type::String if is_quantity(node) => Some("0".into()),
        // Bytes are a list, and a time has no value before it is set.
        Type::String if matches!(format, Some("byte" | "date-time")) => None,
        Type::String => Some("".into()),
        Type::Integer | Type::Number => Some(0.into()),
        Type::Boolean => Some(false.into()),
        Type::Object if !node.properties.is_empty() => Some(Value::Object(Map::new())),
        Type::Object | Type::Array | Type::Any => None,
    }
}
