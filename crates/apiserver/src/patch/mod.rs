//! JSON patch, JSON merge patch and strategic merge patch. (Apply patches are in [`crate::ssa`].)

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use json::{json_patch, json_patch_problems};
pub use merge::merge_patch;
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

/// Objects may not be nested deeper: what is stored must be readable again.
const MAX_DEPTH: usize = 120;

/// How deep a value is nested, as far as it matters.
fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(list) => levels == 0 || list.iter().any(|item| deeper_than(item, levels - 1)),
        Value::Object(map) => levels == 0 || map.values().any(|item| deeper_than(item, levels - 1)),
        _ => false,
    }
}
