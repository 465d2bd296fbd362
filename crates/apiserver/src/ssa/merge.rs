//! Merging an applied configuration into a live object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::fieldset::Element;
use super::types::{Form, List, TypeRef, item_element};

/// The live value with the configuration laid over it.
pub(super) fn merge(live: &Value, config: &Value, ty: TypeRef<'_>) -> Value {
    merge_at(Some(live), Some(config), ty).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merge_at(live: Option<&Value>, config: Option<&Value>, ty: TypeRef<'_>) -> Option<Value> {
    let Some(form) = ty.atom().form(config.or(live)) else {
        // Null is a value, too; whether it may stand there is not decided here.
        return config.filter(|value| value.is_null()).cloned();
    };
    let leaf = || config.or(live).cloned();
    match form {
        Form::Scalar(_) => leaf(),
        Form::List(list) => {
            let items = |v: Option<&Value>| v.and_then(Value::as_array).cloned().unwrap_or_default();
            let (live, config) = (items(live), items(config));
            if list.atomic || (live.is_empty() && config.is_empty()) {
                return leaf();
            }
            let merged = merge_items(&list, &live, &config);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        Form::Map(fields) => {
            let map = |v: Option<&Value>| v.and_then(Value::as_object).cloned().unwrap_or_default();
            let (live_map, config_map) = (map(live), map(config));
            if fields.atomic || (live_map.is_empty() && config_map.is_empty()) {
                return leaf();
            }
            let names: BTreeSet<&String> = live_map.keys().chain(config_map.keys()).collect();
            let merged: Map<String, Value> = names
                .into_iter()
                .filter_map(|name| {
                    let ty = fields.field(name).unwrap_or(TypeRef::Deduced);
                    Some((
                        name.clone(),
                        merge_at(live_map.get(name), config_map.get(name), ty)?,
                    ))
                })
                .collect();
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

/// Items keep the live order; where the configuration orders shared items otherwise, its order wins.
fn merge_items(list: &List<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let elements = |items: &[Value]| -> Vec<(Element, Value)> {
        items
            .iter()
            .filter_map(|item| Some((item_element(list, item).ok()?, item.clone())))
            .collect()
    };
    let (live, config) = (elements(live), elements(config));
    let mut live_by: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live {
        // A duplicate in the live list is replaced as a whole.
        live_by
            .entry(element)
            .and_modify(|seen| *seen = None)
            .or_insert(Some(item));
    }
    let config_by: BTreeMap<&Element, &Value> = config.iter().map(|(e, v)| (e, v)).collect();
    let mut shared: VecDeque<&Element> = config
        .iter()
        .map(|(e, _)| e)
        .filter(|e| live_by.contains_key(e))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::new();
    let mut merged =
        |live: Option<&Value>, config: Option<&Value>| out.extend(merge_at(live, config, list.item));
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        let (mine, theirs) = (live.get(l), config.get(c));
        if let (Some((mine, _)), Some((theirs, item))) = (mine, theirs) {
            if mine == theirs {
                done.insert(mine);
                merged(live_by.get(mine).copied().flatten(), Some(item));
                (l, c) = (l + 1, c + 1);
                next_shared = shared.pop_front();
                continue;
            }
            if config_by.contains_key(mine) && next_shared.is_some_and(|next| next != mine) {
                l += 1;
                continue;
            }
        }
        if let Some((mine, item)) = mine {
            if !config_by.contains_key(mine) {
                merged(Some(item), None);
                l += 1;
                continue;
            }
            if done.contains(mine) {
                l += 1;
            }
        }
        if let Some((theirs, item)) = theirs {
            done.insert(theirs);
            merged(live_by.get(theirs).copied().flatten(), Some(item));
            c += 1;
            if next_shared == Some(theirs) {
                next_shared = shared.pop_front();
            }
        }
    }
    out
}
