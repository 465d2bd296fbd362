//! JSON patch, JSON merge patch and strategic merge patch. (Apply patches are in [`crate::ssa`].)

mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use strategic::strategic_merge;

use crate::http::mended;

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not a patch: answered with 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: answered with 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch has a fault that the real server does not foresee: answered with 500.
    #[error("{0}")]
    Internal(String),
}

/// A JSON patch may not have more operations.
const MAX_OPERATIONS: usize = 10_000;

/// What all copies of a JSON patch may add, so that copies of copies do not fill the memory: the limit of a request.
const MAX_COPIED: usize = 3 << 20;
/// Objects may not be nested deeper: what is stored must be readable again.
const MAX_DEPTH: usize = 120;

/// After how many operations that is looked at: often enough that the stack is never in danger, and no more.
const LOOK_EVERY: usize = 16;

fn check_depth(value: &Value) -> Result<(), PatchError> {
    if deeper_than(value, MAX_DEPTH) {
        let why = format!("the patch nests the object deeper than {MAX_DEPTH} levels");
        return Err(PatchError::Unprocessable(why));
    }
    Ok(())
}

/// How deep a value is nested, as far as it matters.
fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(list) => levels == 0 || list.iter().any(|item| deeper_than(item, levels - 1)),
        Value::Object(map) => levels == 0 || map.values().any(|item| deeper_than(item, levels - 1)),
        _ => false,
    }
}

/// Applies a JSON patch (RFC 6902).
pub fn json_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations: Vec<Value> = serde_json::from_slice(&mended(patch))
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut out = document.clone();
    let mut copied = 0;
    for (at, operation) in operations.into_iter().enumerate() {
        // A misspelt operation is found when it is its turn, as the real server does.
        let target = operation
            .get("path")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let name = operation
            .get("op")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if name == "copy" {
            let from = operation.get("from").and_then(Value::as_str).unwrap_or_default();
            copied += out.pointer(from).map_or(0, |value| value.to_string().len());
            if copied > MAX_COPIED {
                return Err(PatchError::Unprocessable(format!(
                    "unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                )));
            }
        }
        let parsed: json_patch::PatchOperation = serde_json::from_value(operation).map_err(|_| {
            PatchError::Unprocessable(format!(
                "the server rejected our request due to an error in our request: Unexpected kind: {name}"
            ))
        })?;
        json_patch::patch(&mut out, std::slice::from_ref(&parsed)).map_err(|e| {
            PatchError::Unprocessable(format!(
                "{name} operation does not apply: doc is missing path: {target:?}: {}",
                e.kind
            ))
        })?;
        if at % LOOK_EVERY == 0 {
            check_depth(&out)?;
        }
    }
    check_depth(&out)?;
    Ok(out)
}

/// Applies a JSON merge patch (RFC 7386).
pub fn merge_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch: Value = serde_json::from_slice(&mended(patch))
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    if !patch.is_object() {
        return Err(PatchError::Malformed(
            "error decoding patch: a merge patch is an object".into(),
        ));
    }
    let mut out = document.clone();
    json_patch::merge(&mut out, &patch);
    Ok(out)
}
