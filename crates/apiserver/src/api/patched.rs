//! What a webhook made of an object is read as if a client had sent it: it may be of another kind, or of no kind at all.

use serde_json::{Value, json};

use super::{Call, meta, ownership, write};
use crate::admission::Rejection;
use crate::builtin;
use crate::schema::{Cause, Schema};
use crate::status::Failure;

/// Reads the object again; defaults are filled in.
pub(super) fn decode(call: &Call, value: &mut Value) -> Result<(), Rejection> {
    if call.resource.builtin.is_some() {
        built_in(call, value)?;
    } else {
        custom(call, value)?;
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), call.api_version().into());
        map.insert("kind".into(), call.resource.kind.clone().into());
    }
    // A custom resource keeps what its schema does not know until it is stored: it counts as a change.
    if call.resource.builtin.is_some() {
        write::forget_unknown(call, value).map_err(Rejection::from)?;
    }
    // To take all owners away is not to ask for new ones: those of the request are known already.
    meta::edit(value, |metadata| {
        if metadata.get("managedFields") == Some(&json!([])) {
            metadata.remove("managedFields");
        }
    });
    write::default_made(call, value).map_err(Rejection::from)?;
    ownership::forget_empty(call, value).map_err(Rejection::from)?;
    Ok(())
}

/// The same for the Scale of an object.
pub(super) fn decode_scale(value: &mut Value) -> Result<(), Rejection> {
    let schema = ownership::scale_schema();
    typed(&schema, value)?;
    schema.prune(value);
    schema.normalize(value);
    Ok(())
}

fn typed(schema: &Schema, value: &Value) -> Result<(), Rejection> {
    if !value.is_object() {
        return Err(Rejection::internal("the patched object is no object"));
    }
    match schema.decode_error(value) {
        Some(error) => Err(Rejection::internal(&error)),
        None => Ok(()),
    }
}

/// What the object says it is; nothing is said for what it does not say.
fn given<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value
        .get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

fn built_in(call: &Call, value: &Value) -> Result<(), Rejection> {
    let own = (call.api_version(), call.resource.kind.as_str());
    let version = given(value, "apiVersion").unwrap_or(&own.0);
    let kind = given(value, "kind").unwrap_or(own.1);
    if (version, kind) == (own.0.as_str(), own.1) {
        let schema = ownership::schema(call).map_err(Rejection::from)?;
        return typed(&schema, value);
    }
    // It is read as what it says it is, and then is not what it should be.
    let known = builtin::kinds()
        .iter()
        .find(|known| known.kind == kind && known.api_version() == version);
    let Some(known) = known else {
        let why = format!("no kind {kind:?} is registered for version {version:?} in scheme");
        return Err(Rejection::internal(&why));
    };
    typed(&known.schema(), value)?;
    let why = format!(
        "converting ({}.{kind}) to (core.{}): unknown conversion",
        known.version, own.1
    );
    Err(Failure::new(500, "", why).into())
}

fn custom(call: &Call, value: &mut Value) -> Result<(), Rejection> {
    let resource = &call.resource;
    let Some(kind) = given(value, "kind") else {
        let why = format!("Object 'Kind' is missing in '{value}'");
        return Err(Rejection::internal(&why));
    };
    let version = given(value, "apiVersion").unwrap_or_default();
    let served = |version: &str| {
        let mut versions = resource.versions.iter();
        versions.any(|known| resource.api_version(&known.name) == version)
    };
    if !served(version) {
        let why = format!("request to convert CR from an invalid group/version: {version}");
        return Err(Failure::new(500, "", why).into());
    }
    if kind != resource.kind {
        let why = format!("must be {}", resource.kind);
        let cause = Cause::invalid("kind", &kind.into(), &why);
        let name = meta::text(value, "name");
        return Err(Failure::invalid(&resource.group, kind, name, &[cause]).into());
    }
    // Metadata of another type is as good as none.
    let schema = builtin::object_meta();
    meta::edit(value, |metadata| {
        metadata.retain(|name, field| {
            let alone = json!({ name: field });
            schema.decode_error_of(&alone, "ObjectMeta").is_none()
        });
    });
    Ok(())
}
