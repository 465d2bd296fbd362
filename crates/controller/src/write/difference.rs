//! What differs between an object and what is wanted of it, as merge patches.

use serde_json::{Map, Value};

/// A merge patch that turns `current` into one that holds everything in `wanted`; `None` if it already does.
///
/// Only fields that `wanted` names are compared, so what others added (labels, finalizers, defaults) stays.
/// Lists are compared and replaced as a whole.
pub fn difference(current: &Value, wanted: &Value) -> Option<Value> {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => {
            let mut patch = Map::new();
            for (key, want) in wanted {
                match current.get(key) {
                    Some(have) => {
                        if let Some(change) = difference(have, want) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None if want.is_null() => {}
                    None => {
                        patch.insert(key.clone(), want.clone());
                    }
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (have, want) if have == want => None,
        (_, want) => Some(want.clone()),
    }
}

/// A merge patch that makes `have` equal to `want`, fields that `want` lacks removed; `None` if they are equal.
pub fn replacement(have: &Value, want: &Value) -> Option<Value> {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            let mut patch = Map::new();
            for key in have.keys().filter(|key| !want.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, wanted) in want {
                match have.get(key) {
                    Some(current) => {
                        if let Some(change) = replacement(current, wanted) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None => {
                        patch.insert(key.clone(), wanted.clone());
                    }
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (have, want) if have == want => None,
        (_, want) => Some(want.clone()),
    }
}

/// Adds to `want` that what only `have` holds shall go.
pub(super) fn remove_the_rest(have: &Value, want: &mut Value) {
    if let (Value::Object(have), Value::Object(want)) = (have, want) {
        for (key, have) in have {
            match want.get_mut(key) {
                Some(want) => remove_the_rest(have, want),
                None => {
                    want.insert(key.clone(), Value::Null);
                }
            }
        }
    }
}

/// Adds to `want` that what is at this JSON pointer shall go.
pub(super) fn remove_at(want: &mut Value, pointer: &str) {
    let mut at = want;
    for step in pointer.split('/').skip(1) {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return };
        at = fields
            .entry(step.replace("~1", "/").replace("~0", "~"))
            .or_insert(Value::Null);
    }
    *at = Value::Null;
}
