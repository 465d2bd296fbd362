//! Strategic merge patch: a merge patch that knows how the lists of built-in types are merged.

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::{Arena, NodeId, Schema};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch to a built-in object.
pub fn strategic_merge(document: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let (Some(document), Some(patch)) = (document.as_object(), patch.as_object()) else {
        return Err(PatchError::Malformed("invalid JSON document".into()));
    };
    let merger = Merger { arena: &schema.arena };
    merger
        .merge_map(document.clone(), patch.clone(), Some(schema.root))
        .map(Value::Object)
}

fn bad_type() -> PatchError {
    PatchError::Internal("unknown patch type found in map: $patch".into())
}

fn no_key(item: &Map<String, Value>, key: &str) -> PatchError {
    PatchError::Internal(format!(
        "map: {} does not contain declared merge key: {key}",
        Value::Object(item.clone())
    ))
}

struct Merger<'a> {
    arena: &'a Arena,
}

/// How a list field is merged.
#[derive(Clone, Copy)]
struct Strategy<'a> {
    merge: bool,
    key: Option<&'a str>,
    item: Option<NodeId>,
}

impl<'a> Merger<'a> {
    fn field(&self, owner: Option<NodeId>, name: &str) -> Option<NodeId> {
        owner.and_then(|id| self.arena.get(id).field(name))
    }

    fn strategy(&self, owner: Option<NodeId>, name: &str) -> Strategy<'a> {
        let Some(id) = self.field(owner, name) else {
            return Strategy {
                merge: false,
                key: None,
                item: None,
            };
        };
        let node = self.arena.get(id);
        let hints = node.patch.as_deref();
        Strategy {
            merge: hints.is_some_and(|h| h.merge),
            key: hints.and_then(|h| h.merge_key.as_deref()),
            item: node.items,
        }
    }

    fn replaces(&self, owner: Option<NodeId>, name: &str) -> bool {
        let hints = owner.and_then(|id| self.arena.get(id).patch.as_deref());
        hints.is_some_and(|hints| hints.replaced.iter().any(|replaced| **replaced == *name))
    }

    fn merge_map(
        &self,
        mut original: Map<String, Value>,
        mut patch: Map<String, Value>,
        ty: Option<NodeId>,
    ) -> Result<Map<String, Value>, PatchError> {
        if let Some(directive) = patch.remove(DIRECTIVE) {
            return match directive.as_str() {
                Some("replace") => Ok(patch),
                Some("delete") => Ok(Map::new()),
                Some("merge") => self.merge_map(original, patch, ty),
                _ => Err(bad_type()),
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.ordered_lists(&mut original, &mut patch, ty)?;
        for (name, value) in patch {
            if let Some(list) = name.strip_prefix(DELETE_FROM) {
                let unwanted = value
                    .as_array()
                    .ok_or_else(|| PatchError::Malformed("invalid patch format of primitive list".into()))?;
                if let Some(items) = original.get_mut(list).and_then(Value::as_array_mut) {
                    items.retain(|item| !unwanted.contains(item));
                }
                continue;
            }
            if value.is_null() {
                original.remove(&name);
                continue;
            }
            let merged = match (original.remove(&name), value) {
                (Some(Value::Object(_)), new @ Value::Object(_)) if self.replaces(ty, &name) => new,
                (Some(Value::Object(old)), Value::Object(new)) => {
                    Value::Object(self.merge_map(old, new, self.field(ty, &name))?)
                }
                (Some(Value::Array(old)), Value::Array(new)) => {
                    Value::Array(self.merge_list(old, new, self.strategy(ty, &name))?)
                }
                (_, new) => match taken(new) {
                    Some(new) => new,
                    None => continue,
                },
            };
            original.insert(name, merged);
        }
        Ok(original)
    }

    /// `$setElementOrder`: the lists it names are merged first and brought into its order.
    fn ordered_lists(
        &self,
        original: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        ty: Option<NodeId>,
    ) -> Result<(), PatchError> {
        let names: Vec<String> = patch
            .keys()
            .filter_map(|k| k.strip_prefix(ORDER))
            .map(str::to_owned)
            .collect();
        for name in names {
            let bad = || PatchError::Malformed("invalid patch format of setElementOrder list".into());
            let Some(Value::Array(order)) = patch.remove(&format!("{ORDER}{name}")) else {
                return Err(bad());
            };
            let strategy = self.strategy(ty, &name);
            let mut merged = match (original.get(&name), patch.remove(&name)) {
                (None, None) => continue,
                (Some(Value::Array(old)), None) => old.clone(),
                (Some(Value::Array(old)), Some(Value::Array(new))) => {
                    if new
                        .iter()
                        .any(|item| !is_directive(item) && position(&order, item, strategy.key).is_none())
                    {
                        return Err(PatchError::Internal(
                            "The order in patch list doesn't match $setElementOrder list".into(),
                        ));
                    }
                    self.merge_list(old.clone(), new, strategy)?
                }
                (_, Some(Value::Array(new))) => self.merge_list(Vec::new(), new, strategy)?,
                _ => return Err(bad()),
            };
            if let Some(unwanted) = patch
                .remove(&format!("{DELETE_FROM}{name}"))
                .as_ref()
                .and_then(Value::as_array)
            {
                merged.retain(|item| !unwanted.contains(item));
            }
            let server = original
                .get(&name)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            let arranged = arrange(merged, &order, &server, strategy.key)?;
            original.insert(name, Value::Array(arranged));
        }
        Ok(())
    }

    fn merge_list(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        strategy: Strategy<'_>,
    ) -> Result<Vec<Value>, PatchError> {
        if !strategy.merge {
            return Ok(patch);
        }
        let server = original.clone();
        if !patch.iter().chain(&original).any(Value::is_object) {
            let mut merged = original;
            for item in &patch {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            return arrange(merged, &patch, &server, None);
        }
        let Some(key) = strategy.key else {
            return Err(PatchError::Internal(
                "cannot merge lists without merge key for type".into(),
            ));
        };
        let mut merged = original;
        let mut replace = false;
        let mut plain = Vec::new();
        for item in patch {
            let Value::Object(mut item) = item else {
                return Err(PatchError::Unprocessable(
                    "expected an object in the patch list".into(),
                ));
            };
            match item
                .remove(DIRECTIVE)
                .as_ref()
                .map(|d| d.as_str().unwrap_or_default())
            {
                None => plain.push(item),
                Some("replace") => replace = true,
                Some("delete") => {
                    let Some(value) = item.get(key) else {
                        return Err(no_key(&item, key));
                    };
                    merged.retain(|other| other.get(key) != Some(value));
                }
                Some("merge") => {
                    return Err(PatchError::Internal(
                        "merging lists cannot yet be specified in the patch".into(),
                    ));
                }
                Some(_) => return Err(bad_type()),
            }
        }
        if replace {
            let kept = plain.into_iter().map(Value::Object).collect();
            return arrange(kept, &[], &[], Some(key));
        }
        for item in &plain {
            let Some(value) = item.get(key) else {
                return Err(no_key(item, key));
            };
            let place = merged.iter_mut().find(|other| other.get(key) == Some(value));
            match place {
                Some(slot) => {
                    let old = slot.as_object().cloned().unwrap_or_default();
                    *slot = Value::Object(self.merge_map(old, item.clone(), strategy.item)?);
                }
                None => merged.push(Value::Object(item.clone())),
            }
        }
        let order: Vec<Value> = plain.into_iter().map(Value::Object).collect();
        arrange(merged, &order, &server, Some(key))
    }
}

fn is_directive(item: &Value) -> bool {
    item.get(DIRECTIVE).is_some()
}

/// `$retainKeys`: every other field of the object goes.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN) else {
        return Ok(());
    };
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let retained = retained.as_array().ok_or_else(bad)?;
    let listed = |name: &str| retained.iter().any(|r| r.as_str() == Some(name));
    if patch
        .iter()
        .any(|(name, value)| !value.is_null() && !name.starts_with('$') && !listed(name))
    {
        return Err(bad());
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    list.iter().position(|other| match key {
        Some(key) => item.get(key).is_some() && other.get(key) == item.get(key),
        None => other == item,
    })
}

/// Items of the patch in the patch's order, the others in the server's, woven by the server's order. An item without a key has
/// no place.
fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    for item in merged.iter().filter_map(Value::as_object) {
        if let Some(key) = key.filter(|key| !item.contains_key(*key)) {
            return Err(no_key(item, key));
        }
    }
    let (mut from_patch, mut from_server): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| position(patch_order, item, key).is_some());
    from_patch.sort_by_key(|item| position(patch_order, item, key));
    from_server.sort_by_key(|item| position(server_order, item, key));
    let mut out = Vec::with_capacity(from_patch.len() + from_server.len());
    let (mut server, mut patch) = (
        from_server.into_iter().peekable(),
        from_patch.into_iter().peekable(),
    );
    loop {
        let server_first = match (server.peek(), patch.peek()) {
            (None, None) => return Ok(out),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(s), Some(p)) => match (position(server_order, s, key), position(server_order, p, key)) {
                (Some(s), Some(p)) => s < p,
                _ => false,
            },
        };
        out.extend(if server_first { server.next() } else { patch.next() });
    }
}

/// A value that is taken as it is, where there was none to merge it with: without nulls, and without the objects that are
/// directives.
fn taken(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            let kept = kept.filter_map(|(name, value)| Some((name, taken(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(taken).collect())),
        other => Some(other),
    }
}
