//! JSON patch, JSON merge patch and strategic merge patch. (Apply patches are in [`crate::ssa`].)

mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use strategic::strategic_merge;

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

/// Applies a JSON patch (RFC 6902).
pub fn json_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations: Vec<Value> = serde_json::from_slice(patch)
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut out = document.clone();
    for operation in operations {
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
    }
    Ok(out)
}

/// Applies a JSON merge patch (RFC 7386).
pub fn merge_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch: Value = serde_json::from_slice(patch)
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
