//! What a webhook made of an object is read as if a client had sent it: it may be of another kind, or of no kind at all.

use serde_json::{Value, json};

use super::{Call, meta, ownership, write};
use crate::admission::{Reader, Rejection};
use crate::builtin;
use crate::schema::{Cause, Schema};
use crate::ssa;
use crate::status::Failure;

/// Where a secret has what is written as text; defaulting moves it to the rest.
const TEXTS: &str = "stringData";

/// Reads objects of the kind that the call is about.
pub(super) struct Objects<'a> {
    pub call: &'a Call,
    /// Whether the request put times into the object.
    pub new_times: bool,
}

impl Reader for Objects<'_> {
    fn read(&self, value: &mut Value) -> Result<(), Rejection> {
        let call = self.call;
        let built_in_kind = call.resource.builtin.is_some();
        if built_in_kind {
            built_in(call, value)?;
        } else {
            custom(call, value)?;
        }
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".into(), call.api_version().into());
            map.insert("kind".into(), call.resource.kind.clone().into());
        }
        // A custom resource stays as it is until the last webhook has seen it.
        if built_in_kind {
            write::forget_unknown(call, value).map_err(Rejection::from)?;
            forget_no_owners(value);
        }
        Ok(())
    }

    fn same(&self, before: &Value, after: &Value) -> bool {
        if self.call.resource.builtin.is_none() {
            return before == after;
        }
        ownership::schema(self.call).is_ok_and(|schema| same(&schema, before, after))
    }

    fn fill(&self, value: &mut Value, version: &str) -> Result<(), Rejection> {
        let resource = &self.call.resource;
        if resource.builtin.is_some() {
            // The next one sees the texts of a secret as texts.
            let schema = ownership::schema(self.call).map_err(Rejection::from)?;
            schema.fill_nulls(value);
            let texts = value.as_object_mut().and_then(|secret| secret.remove(TEXTS));
            self.settle(value)?;
            let texts = texts.filter(|texts| texts.as_object().is_some_and(|texts| !texts.is_empty()));
            if let Some((texts, secret)) = texts.zip(value.as_object_mut()) {
                secret.insert(TEXTS.into(), texts);
            }
            return Ok(());
        }
        if let Some(schema) = resource.version(version).and_then(|v| v.schema.as_ref()) {
            schema.fill_content(value);
        }
        Ok(())
    }

    fn settle(&self, value: &mut Value) -> Result<(), Rejection> {
        if self.call.resource.builtin.is_some() {
            write::default_made(self.call, value).map_err(Rejection::from)?;
            ownership::forget_empty(self.call, value).map_err(Rejection::from)?;
        }
        Ok(())
    }

    fn has_exact_times(&self) -> bool {
        // Those of a custom resource are texts from the start.
        self.new_times && self.call.resource.builtin.is_some()
    }
}

/// The same for the Scale of an object.
pub(super) struct Scales {
    pub schema: Schema,
    pub new_times: bool,
}

impl Reader for Scales {
    fn read(&self, value: &mut Value) -> Result<(), Rejection> {
        let version = given(value, "apiVersion").unwrap_or(ssa::SCALE_VERSION);
        let kind = given(value, "kind").unwrap_or("Scale");
        if (version, kind) != (ssa::SCALE_VERSION, "Scale") {
            let why = format!("no kind {kind:?} is registered for version {version:?} in scheme");
            return Err(Rejection::internal(&why));
        }
        typed(&self.schema, value)?;
        self.schema.prune(value);
        self.schema.normalize(value);
        Ok(())
    }

    fn same(&self, before: &Value, after: &Value) -> bool {
        same(&self.schema, before, after)
    }

    fn fill(&self, _: &mut Value, _: &str) -> Result<(), Rejection> {
        Ok(())
    }

    fn has_exact_times(&self) -> bool {
        self.new_times
    }
}

/// Whether two objects are the same once they are read into their type.
fn same(schema: &Schema, before: &Value, after: &Value) -> bool {
    let [before, after] = [before, after].map(|value| {
        let mut value = value.clone();
        schema.normalize(&mut value);
        value
    });
    before == after
}

/// Gives the metadata of a custom resource the form of metadata when all webhooks have seen it: what is of another type is as
/// good as none, unless it must be converted to be stored.
pub(super) fn tidy(call: &Call, value: &mut Value) -> Result<(), Failure> {
    let resource = &call.resource;
    if resource.builtin.is_some() {
        return Ok(());
    }
    let schema = builtin::object_meta();
    let mut metadata = value.get("metadata").cloned().unwrap_or_default();
    if let Some(map) = metadata.as_object_mut() {
        // The server has its own for these.
        map.retain(|name, _| !matches!(name.as_str(), "uid" | "creationTimestamp" | "generation"));
    }
    if resource.storage != call.target.version
        && let Some(error) = schema.decode_error_of(&metadata, "ObjectMeta")
    {
        return Err(Failure::new(500, "", error));
    }
    meta::edit(value, |metadata| {
        metadata.retain(|name, field| {
            let alone = json!({ name: field });
            schema.decode_error_of(&alone, "ObjectMeta").is_none()
        });
    });
    forget_no_owners(value);
    if let Some(metadata) = value.get_mut("metadata").filter(|m| m.is_object()) {
        schema.normalize(metadata);
    }
    Ok(())
}

/// To take all owners away is not to ask for new ones: those of the request are known already.
fn forget_no_owners(value: &mut Value) {
    meta::edit(value, |metadata| {
        if metadata.get("managedFields") == Some(&json!([])) {
            metadata.remove("managedFields");
        }
    });
}

/// Whether the request wrote a time next to an owner. An apply does for whatever it changes, before anything is filled in again;
/// anything else does for whoever comes to own something, not for who only takes away.
pub(super) fn has_new_times(value: &Value, old: Option<&Value>, applied: Option<bool>) -> bool {
    let owners = value.pointer("/metadata/managedFields").and_then(Value::as_array);
    let owned = owners.is_some_and(|owners| !owners.is_empty());
    owned && applied.unwrap_or_else(|| old.is_none_or(|old| brings(&content(value), &content(old))))
}

/// Whether two objects differ in what their owners own.
pub(super) fn differs(new: &Value, old: &Value) -> bool {
    content(new) != content(old)
}

/// An object without what the server itself keeps in it.
fn content(value: &Value) -> Value {
    let mut value = value.clone();
    meta::edit(&mut value, |metadata| {
        for name in [
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
            "selfLink",
            "managedFields",
        ] {
            metadata.remove(name);
        }
    });
    value
}

/// Whether there is anything in an object that was not there before.
fn brings(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => new
            .iter()
            .any(|(name, field)| old.get(name).is_none_or(|before| brings(field, before))),
        _ => new != old,
    }
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

fn custom(call: &Call, value: &Value) -> Result<(), Rejection> {
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
    Ok(())
}
