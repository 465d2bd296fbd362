//! Fields of a manifest that a server-side apply leaves alone.

use serde_json::Value;
use writ_api::work::{IgnoreField, IgnoreFieldCondition};
use writ_runtime::path::Path;

/// Removes the fields with that condition from a manifest. A field that is not there is no error.
pub fn remove(
    object: &mut Value,
    fields: &[IgnoreField],
    condition: IgnoreFieldCondition,
) -> Result<(), String> {
    for field in fields.iter().filter(|field| field.condition == condition) {
        for path in paths(field) {
            path?.remove(object);
        }
    }
    Ok(())
}

fn paths(field: &IgnoreField) -> impl Iterator<Item = Result<Path, String>> {
    let json_paths = field.json_paths.iter().map(|path| Path::jsonpath(path));
    let pointers = field.json_pointers.iter().map(|path| Path::pointer(path));
    let jq = field.jq_path_expressions.iter().map(|path| Path::jq(path));
    json_paths
        .chain(pointers)
        .chain(jq)
        .map(|path| path.map_err(|error| error.to_string()))
}
