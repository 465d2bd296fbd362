//! Lists that are sets or maps: no item twice.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::cause::{Cause, child, index, key};
use super::node::{Additional, Arena, ListType, NodeId};

/// The item of `list` whose key fields equal those of `item`; none if that lacks one of them.
pub(crate) fn find_by_key<'a>(list: &'a [Value], item: &Value, keys: &[Box<str>]) -> Option<&'a Value> {
    let is_key = |value: &Value| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_));
    let wanted = key_of(item, keys).filter(|key| key.iter().all(is_key))?;
    list.iter()
        .find(|other| key_of(other, keys).as_ref() == Some(&wanted))
}

fn key_of(item: &Value, keys: &[Box<str>]) -> Option<Vec<Value>> {
    let map = item.as_object()?;
    Some(
        keys.iter()
            .map(|k| map.get(k.as_ref()).cloned().unwrap_or(Value::Null))
            .collect(),
    )
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
