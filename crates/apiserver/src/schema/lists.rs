//! Lists that are sets or maps: no item twice.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::cause::{Cause, child, index, key};
use super::node::{Additional, Arena, ListType, NodeId};

/// The items of a list by their key fields.
pub(crate) struct ByKey<'a> {
    keys: &'a [Box<str>],
    items: HashMap<String, &'a Value>,
}

impl<'a> ByKey<'a> {
    pub fn of(list: &'a [Value], keys: &'a [Box<str>]) -> Self {
        let mut items = HashMap::with_capacity(list.len());
        for item in list {
            if let Some(key) = key_of(item, keys) {
                items.entry(key).or_insert(item);
            }
        }
        Self { keys, items }
    }

    /// The item whose key fields equal those of `item`; none if that lacks one of them.
    pub fn find(&self, item: &Value) -> Option<&'a Value> {
        self.items.get(&key_of(item, self.keys)?).copied()
    }
}

/// The key fields of an item as text; none if it lacks one of them.
fn key_of(item: &Value, keys: &[Box<str>]) -> Option<String> {
    let map = item.as_object()?;
    let mut text = String::new();
    for key in keys {
        match map.get(key.as_ref())? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            // As JSON no field runs into the next, and none has a line end.
            value => {
                let _ = writeln!(text, "{value}");
            }
        }
    }
    Some(text)
}

/// The duplicates in every set and map list below `value`.
pub(super) fn validate(arena: &Arena, id: NodeId, value: &Value, path: &str) -> Vec<Cause> {
    let node = arena.get(id);
    let mut causes = Vec::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(id) = node.property(name) {
                    causes.extend(validate(arena, id, value, &child(path, name)));
                } else if let Additional::Schema(id) = node.additional {
                    causes.extend(validate(arena, id, value, &key(path, name)));
                }
            }
        }
        Value::Array(list) => {
            match node.list_type {
                ListType::Set => {
                    causes.extend(
                        repeated(list)
                            .into_iter()
                            .filter_map(|i| list.get(i).map(|item| Cause::duplicate(index(path, i), item))),
                    );
                }
                ListType::Map => causes.extend(validate_map(list, &node.map_keys, path)),
                ListType::Atomic => {}
            }
            if let Some(items) = node.items {
                for (i, item) in list.iter().enumerate() {
                    causes.extend(validate(arena, items, item, &index(path, i)));
                }
            }
        }
        _ => {}
    }
    causes
}

/// The indices of second appearances.
fn repeated(items: &[Value]) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            out.push(i);
        }
    }
    out
}

fn validate_map(list: &[Value], keys: &[Box<str>], path: &str) -> Vec<Cause> {
    if let Some((i, item)) = list
        .iter()
        .enumerate()
        .find(|(_, item)| !item.is_null() && !item.is_object())
    {
        return vec![Cause::invalid(
            index(path, i),
            item,
            "must be an object for an array of list-type map",
        )];
    }
    let identities: Vec<Value> = list
        .iter()
        .map(|item| {
            let fields = keys
                .iter()
                .filter_map(|k| Some((k.to_string(), item.get(k.as_ref())?.clone())));
            Value::Object(fields.collect::<Map<_, _>>())
        })
        .collect();
    repeated(&identities)
        .into_iter()
        .filter_map(|i| {
            identities
                .get(i)
                .map(|identity| Cause::duplicate(index(path, i), identity))
        })
        .collect()
}
