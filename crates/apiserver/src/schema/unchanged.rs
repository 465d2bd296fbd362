//! What an update did not change: it is not blamed for that.

use serde_json::Value;

use super::lists::ByKey;
use super::node::{Arena, ListType, NodeId};

/// Whether a value is the one before, as far as the real server can tell: it looks for items of a list that is a map by
/// their keys, and for fields that the schema knows. What it cannot find has changed.
pub(super) fn is_unchanged(arena: &Arena, id: NodeId, new: &Value, old: &Value) -> bool {
    let node = arena.get(id);
    match (new, old) {
        (Value::Array(new), Value::Array(old)) if node.list_type == ListType::Map => {
            let same_length = new.len() == old.len();
            let old = ByKey::of(old, &node.map_keys);
            same_length
                && new.iter().all(|item| {
                    let before = old.find(item).zip(node.items);
                    before.is_some_and(|(before, items)| is_unchanged(arena, items, item, before))
                })
        }
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, value)| {
                    let known = node.field(name).zip(old.get(name));
                    known.is_some_and(|(id, before)| is_unchanged(arena, id, value, before))
                })
        }
        _ => new == old,
    }
}
