//! Who manages which fields: the one place that calls the engine.

use serde_json::Value;

use super::Call;
use super::restrict::{self, Kept};
use super::write::Options;
use crate::builtin;
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
    if &*call.resource.table == super::signing::CSR {
        return match call.target.subresource.as_str() {
            "status" => &["spec", "status.conditions"],
            "approval" => &["spec", "status.certificate"],
            _ => &["spec", "status"],
        };
    }
    match call.target.subresource.as_str() {
        "" if call.version().is_ok_and(|version| version.status) => &["status"],
        "status" if custom => &["metadata", "spec"],
        "status" => match restrict::kept_metadata(call) {
            Kept::All => &["metadata", "spec"],
            Kept::Field("labels") => &["metadata.labels", "spec"],
            Kept::Field("ownerReferences") => &["metadata.ownerReferences", "spec"],
            Kept::Field(_) | Kept::Nothing => &["spec"],
        },
        "finalize" => &["status"],
        _ => &[],
    }
}

fn manager<'a>(
    call: &'a Call,
    options: &'a Options,
    api_version: &'a str,
    versions: &'a [String],
) -> Manager<'a> {
    Manager {
        name: &options.manager,
        subresource: &call.target.subresource,
        time: call.state.clock.now(),
        force: options.force,
        api_version,
        ignored: ignored(call),
        versions,
        variants: call.resource.variants(&call.target.version),
        others: call.resource.other_owners(),
    }
}

/// Owners that wrote in another version are compared in that version; this is what keeps an object from having its form.
fn foreign(call: &Call, owned: &Value, objects: &[&Value]) -> Option<String> {
    if !call.resource.differing {
        return None;
    }
    let own = call.api_version();
    let entries = owned.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().find_map(|entry| {
        let version = entry.get("apiVersion").and_then(Value::as_str)?;
        let schema = call.resource.stored_version(version)?.schema.as_ref()?;
        let mut objects = objects.iter().filter(|_| version != own);
        objects.find_map(|object| ssa::type_errors(object, schema).into_iter().next())
    })
}

/// Records who wrote what. After that nobody sees the empty lists and maps of a built-in object, which are not stored.
/// Says whether there were any.
pub(super) fn track(call: &Call, options: &Options, old: Option<&Value>, new: &mut Value) -> Result<bool> {
    let uncompared = call.resource.builtin.is_some() && schema(call)?.forget_uncompared(new);
    record(call, options, old, new)?;
    Ok(forget_empty(call, new)? || uncompared)
}

/// The same for a write that has recorded it already.
pub(super) fn forget_empty(call: &Call, new: &mut Value) -> Result<bool> {
    Ok(call.resource.builtin.is_some() && schema(call)?.forget_empty(new))
}

fn record(call: &Call, options: &Options, old: Option<&Value>, new: &mut Value) -> Result<()> {
    let api_version = call.api_version();
    if let Some(old) = old
        && foreign(call, old, &[old, new]).is_some()
    {
        super::meta::edit(new, |metadata| metadata.remove("managedFields"));
        return Ok(());
    }
    let versions = call.resource.owners_versions();
    let manager = manager(call, options, &api_version, &versions);
    ssa::track_update(old, new, &manager, &schema(call)?);
    Ok(())
}

/// The schema of every Scale.
pub(super) fn scale_schema() -> Schema {
    builtin::definition("io.k8s.api.autoscaling.v1.Scale").unwrap_or_else(Schema::anything)
}

/// Records who wrote what in a Scale, of which `old` says who wrote it before.
pub(super) fn track_scale(call: &Call, options: &Options, old: &Value, new: &mut Value) {
    let versions = [ssa::SCALE_VERSION.to_owned()];
    let manager = manager(call, options, ssa::SCALE_VERSION, &versions);
    ssa::track_update(Some(old), new, &manager, &scale_schema());
}

/// Applies a configuration to a Scale.
pub(super) fn apply_scale(call: &Call, options: &Options, live: &Value, config: &Value) -> Result<Value> {
    let versions = [ssa::SCALE_VERSION.to_owned()];
    let manager = manager(call, options, ssa::SCALE_VERSION, &versions);
    let schema = scale_schema();
    let custom = call.resource.builtin.is_none();
    // The real server has no way to make a Scale of what was merged into that of a custom resource, or of the empty
    // one that a first apply begins with. So there only what changes nothing comes through.
    let no_way = |what: &str, of: &str| {
        Failure::new(
            500,
            "",
            format!(
                "{what} ({of}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid \
                 group/version: autoscaling/v1"
            ),
        )
    };
    let owned = |scale: &Value| scale.pointer("/metadata/managedFields").is_some();
    if custom && !owned(live) {
        let what = "failed to create manager for existing fields: failed to convert live object";
        return Err(no_way(what, "/"));
    }
    let merged = ssa::apply(Some(live), config, &manager, &schema).map_err(refusal)?;
    if custom && !ssa::same_but_owners(live, &merged) {
        let text = |name: &str| super::meta::text(config, name).to_owned();
        let of = format!("{}/{}", text("namespace"), text("name"));
        return Err(no_way("failed to convert new object", &of));
    }
    typed(merged, &schema, "autoscaling/v1, Kind=Scale")
}

fn refusal(error: ApplyError) -> Failure {
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
    let versions = call.resource.owners_versions();
    let manager = manager(call, options, &api_version, &versions);
    let lost = |objects: &[&Value]| match live.and_then(|live| foreign(call, live, objects)) {
        Some(why) => Err(Failure::new(500, "", why)),
        None => Ok(()),
    };
    if let Some(live) = live {
        lost(&[live])?;
    }
    let merged = ssa::apply(live, config, &manager, schema);
    if let (Err(ApplyError::Conflicts(_)), true) = (&merged, call.resource.differing) {
        // Conflicts are known when the object had its form in every version.
        let forced = Manager {
            force: true,
            ..manager
        };
        if let Ok(forced) = ssa::apply(live, config, &forced, schema) {
            lost(&[&forced])?;
        }
    }
    let merged = merged.map_err(refusal)?;
    if call.resource.builtin.is_none() {
        lost(&[&merged])?;
        return Ok(merged);
    }
    let kind = format!("{}, Kind={}", group_version(call), call.resource.kind);
    typed(merged, schema, &kind)
}

/// Apply merges untyped; the real server finds what its types cannot hold only when it converts the result.
fn typed(mut merged: Value, schema: &Schema, kind: &str) -> Result<Value> {
    schema.cut_integers(&mut merged);
    let Some(error) = schema.decode_error(&merged) else {
        return Ok(merged);
    };
    let text = |path: &str| merged.pointer(path).and_then(Value::as_str).unwrap_or_default();
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

/// As Go prints a group and version: the core group is empty, not absent.
fn group_version(call: &Call) -> String {
    let api_version = call.api_version();
    if api_version.contains('/') {
        api_version
    } else {
        format!("/{api_version}")
    }
}
