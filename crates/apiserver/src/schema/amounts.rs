//! Values that differ in nothing but how their quantities are written.

use serde_json::Value;

use super::Schema;
use super::node::{Arena, NodeId};
use super::normalize::is_quantity;
use crate::quantity::Quantity;

impl Schema {
    /// Whether a field at the top says the same in both: an amount is the same however it is written.
    pub(crate) fn same_amounts(&self, name: &str, a: &Value, b: &Value) -> bool {
        let field = self.arena.get(self.root).field(name);
        a == b || field.is_some_and(|id| same(&self.arena, a, b, id))
    }
}

fn same(arena: &Arena, a: &Value, b: &Value, id: NodeId) -> bool {
    let node = arena.get(id);
    match (a, b) {
        _ if a == b => true,
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| {
                    let pair = b.get(name).zip(node.field(name));
                    pair.is_some_and(|(b, id)| same(arena, a, b, id))
                })
        }
        (Value::Array(a), Value::Array(b)) => {
            let items = node.items.filter(|_| a.len() == b.len());
            items.is_some_and(|id| a.iter().zip(b).all(|(a, b)| same(arena, a, b, id)))
        }
        (Value::String(a), Value::String(b)) if is_quantity(node) => {
            let amounts = Quantity::parse(a).zip(Quantity::parse(b));
            amounts.is_some_and(|(a, b)| a == b)
        }
        _ => false,
    }
}
