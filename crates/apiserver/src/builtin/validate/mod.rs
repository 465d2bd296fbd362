//! Validation of built-in objects, with the real server's words.

use serde_json::Value;

use super::Kind;
use crate::schema::{Cause, meta};

/// Everything that is wrong with an object.
pub(super) fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let metadata = new.get("metadata").unwrap_or(&Value::Null);
    match old {
        None => meta::validate_create(metadata, kind.namespaced, kind.name_rule, "metadata"),
        Some(old) => meta::validate_update(metadata, old.get("metadata").unwrap_or(&Value::Null), "metadata"),
    }
}
