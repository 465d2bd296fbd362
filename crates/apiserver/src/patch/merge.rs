//! JSON merge patch as the real server knows it: RFC 7386, but nulls are also taken out of maps inside of lists.

use serde_json::{Map, Value};

use super::PatchError;
use crate::http::mended;

/// Applies a JSON merge patch.
pub fn merge_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch: Value = serde_json::from_slice(&mended(patch))
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed(
            "error decoding patch: a merge patch is an object".into(),
        ));
    };
    let mut out = document.clone();
    match &mut out {
        Value::Object(map) => merge_maps(map, patch),
        other => *other = without_nulls(Value::Object(patch)),
    }
    Ok(out)
}

fn merge_maps(map: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (map.get_mut(&name), value) {
            (_, Value::Null) => {
                map.remove(&name);
            }
            (Some(Value::Object(here)), Value::Object(value)) => merge_maps(here, value),
            // What takes the place of a map is taken as it is.
            (Some(here @ Value::Object(_)), value) => *here = value,
            (_, value) => {
                map.insert(name, without_nulls(value));
            }
        }
    }
}

/// Null items of lists stay: they have their place.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let given = map.into_iter().filter(|(_, value)| !value.is_null());
            given.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
