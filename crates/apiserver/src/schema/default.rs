//! Defaulting from the schema.

use serde_json::Value;

use super::Schema;
use super::node::{Additional, Arena, NodeId};
use crate::builtin;

impl Schema {
    /// Fills in the schema's defaults; nulls that are neither allowed nor defaulted are removed first.
    pub fn default(&self, object: &mut Value) {
        self.prune_nulls(object);
        self.fill(object);
    }

    /// Fills in the schema's defaults and leaves every other null for validation to find.
    pub fn fill(&self, object: &mut Value) {
        self.fill_content(object);
        if !self.typed
            && let Some(metadata) = object.get_mut("metadata").filter(|m| m.is_object())
        {
            builtin::object_meta().normalize(metadata);
        }
    }

    /// The same without a look at the metadata.
    pub fn fill_content(&self, object: &mut Value) {
        default(&self.arena, object, self.root);
    }
}

fn default(arena: &Arena, value: &mut Value, id: NodeId) {
    let node = arena.get(id);
    let replace = |slot: &mut Value, id: NodeId| {
        let child = arena.get(id);
        if slot.is_null()
            && !child.nullable
            && let Some(value) = &child.default
        {
            *slot = (**value).clone();
        }
    };
    match value {
        Value::Object(map) => {
            for (name, id) in &node.properties {
                let child = arena.get(*id);
                let Some(value) = &child.default else { continue };
                match map.get_mut(name.as_ref()) {
                    Some(slot) => replace(slot, *id),
                    None => {
                        map.insert(name.to_string(), (**value).clone());
                    }
                }
            }
            for (name, slot) in map.iter_mut() {
                if let Some(id) = node.property(name) {
                    default(arena, slot, id);
                } else if let Additional::Schema(id) = node.additional {
                    replace(slot, id);
                    default(arena, slot, id);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = node.items else { return };
            for slot in list {
                replace(slot, items);
                default(arena, slot, items);
            }
        }
        _ => {}
    }
}
