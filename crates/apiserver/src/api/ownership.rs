//! Who manages which fields.

use serde_json::Value;

use crate::schema::Schema;

/// A writer, as managed fields know it.
pub(super) struct Manager {
    pub name: String,
    pub api_version: String,
    pub subresource: String,
    pub time: String,
    pub force: bool,
}

/// Records who wrote what.
pub(super) fn track(old: Option<&Value>, new: &mut Value, manager: &Manager, schema: &Schema) {
    let _ = (
        old,
        new,
        schema,
        &manager.name,
        &manager.api_version,
        &manager.subresource,
        &manager.time,
        manager.force,
    );
}
