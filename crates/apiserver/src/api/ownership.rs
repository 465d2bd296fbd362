//! Who manages which fields: the one place that calls the engine.

use serde_json::Value;

use super::Call;
use super::write::Options;
use crate::schema::Schema;
use crate::ssa::{self, ApplyError, Manager};
use crate::status::{Failure, Result};

/// The schema of the version that was asked for.
pub(super) fn schema(call: &Call) -> Result<Schema> {
    Ok(call
        .version()?
        .schema
        .as_deref()
        .cloned()
        .unwrap_or_else(Schema::anything))
}

/// Fields that a write through this door cannot change, so that nobody comes to own them by it.
fn ignored(call: &Call) -> &'static [&'static str] {
    let custom = call.resource.builtin.is_none();
    match call.target.subresource.as_str() {
        "" | "scale" if call.version().is_ok_and(|version| version.status) => &["status"],
        "status" if custom => &["metadata", "spec"],
        "status" | "approval" => &["spec"],
        _ => &[],
    }
}

fn manager<'a>(call: &'a Call, options: &'a Options, api_version: &'a str) -> Manager<'a> {
    Manager {
        name: &options.manager,
        subresource: &call.target.subresource,
        time: call.state.clock.now(),
        force: options.force,
        api_version,
        ignored: ignored(call),
    }
}

/// Records who wrote what.
pub(super) fn track(call: &Call, options: &Options, old: Option<&Value>, new: &mut Value) -> Result<()> {
    let api_version = call.api_version();
    // The real server cannot read signing requests as typed objects, and keeps no owners of their fields.
    if &*call.resource.table == "certificatesigningrequests.certificates.k8s.io" {
        super::meta::edit(new, |metadata| metadata.remove("managedFields"));
        return Ok(());
    }
    ssa::track_update(old, new, &manager(call, options, &api_version), &schema(call)?);
    if call.target.subresource == "scale" {
        forget_time(new);
    }
    Ok(())
}

/// Records who wrote what in a Scale, of which `old` says who wrote it before.
pub(super) fn track_scale(call: &Call, options: &Options, old: &Value, new: &mut Value) {
    let manager = Manager {
        ignored: &["status"],
        ..manager(call, options, "autoscaling/v1")
    };
    ssa::track_update(Some(old), new, &manager, &Schema::anything());
}

/// What is written through `scale` is recorded without a time, and sorted accordingly.
fn forget_time(value: &mut Value) {
    let entries = value
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    let Some(entries) = entries else { return };
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        if entry.get("subresource").and_then(Value::as_str) == Some("scale") {
            entry.remove("time");
        }
    }
    let text = |entry: &Value, name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    entries.sort_by_cached_key(|entry| (text(entry, "operation"), text(entry, "time")));
}

/// Applies a configuration.
pub(super) fn apply(
    call: &Call,
    options: &Options,
    live: Option<&Value>,
    config: &Value,
    schema: &Schema,
) -> Result<Value> {
    let api_version = call.api_version();
    let merged =
        ssa::apply(live, config, &manager(call, options, &api_version), schema).map_err(|error| {
            let message = error.to_string();
            match error {
                ApplyError::Conflicts(conflicts) => {
                    let pairs: Vec<(String, String)> = conflicts
                        .into_iter()
                        .map(|conflict| (conflict.field, format!("conflict with {}", conflict.manager)))
                        .collect();
                    Failure::apply_conflict(message, &pairs)
                }
                ApplyError::BadRequest(_) => Failure::bad_request(message),
                ApplyError::Type(_) => Failure::new(500, "", message),
            }
        })?;
    // Apply merges untyped; the real server finds what its types cannot hold only when it converts the result.
    match schema
        .decode_error(&merged)
        .filter(|_| call.resource.builtin.is_some())
    {
        None => Ok(merged),
        Some(error) => {
            let text = |path: &str| merged.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let kind = format!("{}, Kind={}", group_version(call), call.resource.kind);
            Err(Failure::new(
                500,
                "",
                format!(
                    "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured \
                     object to {kind}: error decoding from json: {error}",
                    text("/metadata/namespace"),
                    text("/metadata/name"),
                ),
            ))
        }
    }
}

/// As Go prints a group and version: the core group is empty, not absent.
fn group_version(call: &Call) -> String {
    let api_version = call.api_version();
    if api_version.contains('/') {
        api_version
    } else {
        format!("/{api_version}")
    }
}
