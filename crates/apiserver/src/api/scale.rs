//! The scale of an object: a number, reached without knowing the kind.

use std::sync::PoisonError;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::call::Scaling;
use super::patch::{check_options, configuration, refuse, supported};
use super::update::{How, check_name, modify};
use super::{Call, meta, ownership, write};
use crate::http::{Body, decode_body, media_type};
use crate::jsonpath;
use crate::patch as engine;
use crate::registry::Scale;
use crate::schema::{Cause, meta as object_meta};
use crate::ssa;
use crate::status::{Failure, Result};

const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What a custom resource without the number has in its Scale: it must not be scaled by accident.
const UNSET: i64 = i32::MIN as i64;

pub(super) async fn answer(call: &Call, verb: &str, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let version = call.version()?;
    let scale = version.scale.as_ref().ok_or_else(Failure::no_such_path)?;
    if verb == "get" {
        let value = call.current()?.value();
        // Custom resources have no default for it.
        if call.resource.builtin.is_none() && jsonpath::find(&value, &scale.spec).is_empty() {
            let why = format!("the spec replicas field {:?} does not exist", scale.spec);
            return Err(Failure::internal(why));
        }
        return call.respond_value(StatusCode::OK, &show(scale, &value));
    }
    let kind = media_type(&call.headers).to_owned();
    let (options, how) = match (verb, kind.as_str()) {
        ("update", _) => (write::options(call, "UpdateOptions")?, How::Replace),
        (_, kind) => {
            supported(call, kind)?;
            let how = if kind == APPLY { How::Apply } else { How::Patch };
            (check_options(call, kind)?, how)
        }
    };
    let sent = if how == How::Replace {
        let decoded = decode_body(&call.headers, body, (ssa::SCALE_VERSION, "Scale"))?;
        let mut sent = decoded
            .map_err(|error| Failure::bad_request(format!("error decoding Scale: {error}")))?
            .value;
        read(call, &sent, &options)?;
        check_name(call, &sent)?;
        write::check_place(call, &mut sent)?;
        tidy(&mut sent);
        Some(sent)
    } else {
        None
    };
    // To the rest of the server this is a change of the object itself.
    let mut whole = call.detached();
    whole.headers = call.headers.clone();
    let paths = replicas_paths(call);
    let make = |live: Option<&Value>| {
        let live = live.ok_or_else(|| call.not_found())?;
        let mut before = show(scale, live);
        if call.resource.builtin.is_none() && jsonpath::find(live, &scale.spec).is_empty() {
            set(&mut before, "spec.replicas", UNSET.into());
        }
        ssa::owners_of_scale(live, &mut before, &paths);
        let after = if how == How::Apply {
            let mut after = applied(call, &options, &before, body)?;
            check_same(call, &mut after)?;
            after
        } else {
            let mut after = match &sent {
                Some(sent) => sent.clone(),
                None => patched(call, &options, &kind, &before, body)?,
            };
            ownership::track_scale(call, &options, &before, &mut after);
            after
        };
        if after.pointer("/spec/replicas").and_then(Value::as_i64) == Some(UNSET) {
            return Err(Failure::bad_request(format!(
                "the spec replicas field {:?} cannot be empty",
                scale.spec
            )));
        }
        let mut new = live.clone();
        apply(call, scale, &after, &mut new, how == How::Replace)?;
        ssa::owners_of_object(&mut new, &after, &paths, &call.api_version());
        let scaling = Scaling { before, after };
        *whole.scale.lock().unwrap_or_else(PoisonError::into_inner) = Some(scaling);
        Ok(new)
    };
    let done = modify(&whole, &options, how, &make).await?;
    call.take_warnings(&whole);
    done.durable(call).await?;
    call.respond_value(done.code, &show(scale, &done.value(&whole)))
}

/// The Scale that a JSON or merge patch makes.
fn patched(
    call: &Call,
    options: &write::Options,
    kind: &str,
    before: &Value,
    bytes: &Bytes,
) -> Result<Value> {
    // Patches do not reach the owners of a Scale.
    let mut bare = before.clone();
    meta::edit(&mut bare, |metadata| metadata.remove("managedFields"));
    let after = if kind == JSON {
        engine::json_patch(&bare, bytes)
    } else {
        engine::merge_patch(&bare, bytes)
    };
    let mut after = after.map_err(refuse)?;
    let shown = Value::from(after.to_string());
    read(call, &after, options).map_err(|failure| {
        Failure::invalid("", "", "", &[Cause::invalid("patch", &shown, failure.message())])
    })?;
    tidy(&mut after);
    check_same(call, &mut after)?;
    Ok(after)
}

/// The Scale that an apply makes, with its owners.
fn applied(call: &Call, options: &write::Options, before: &Value, bytes: &Bytes) -> Result<Value> {
    let (config, duplicates) = configuration(bytes, ssa::SCALE_VERSION, "Scale")?;
    let mut after = ownership::apply_scale(call, options, before, &config)?;
    write::report(call, options.validation, &duplicates)?;
    tidy(&mut after);
    Ok(after)
}

/// A patch cannot make a Scale that of another object.
fn check_same(call: &Call, after: &mut Value) -> Result<()> {
    write::check_place(call, after)?;
    check_name(call, after)
}

/// The form that a Scale has as a typed object.
fn tidy(scale: &mut Value) {
    let schema = ownership::scale_schema();
    schema.prune(scale);
    schema.normalize(scale);
}

/// Where the number is in each version of the object.
fn replicas_paths(call: &Call) -> ssa::ReplicasPaths {
    let versions = call.resource.versions.iter();
    versions
        .map(|version| {
            let path = version.scale.as_ref().map(|scale| scale.spec.clone());
            (call.resource.api_version(&version.name), path)
        })
        .collect()
}

/// Whether a Scale is one; what it has beyond that is dropped, told or refused.
fn read(call: &Call, value: &Value, options: &write::Options) -> Result<()> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let bad = |kind: &str, why: String| {
        Err(Failure::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a Scale: {why}"
        )))
    };
    if !matches!(version, "" | "autoscaling/v1") || !matches!(kind, "" | "Scale") {
        return bad(
            kind,
            format!("converting ({version}.{kind}) to (autoscaling.Scale): unknown conversion"),
        );
    }
    let number = |count: &Value| count.is_null() || count.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
    for (pointer, owner) in [
        ("/spec/replicas", "ScaleSpec"),
        ("/status/replicas", "ScaleStatus"),
    ] {
        if value.pointer(pointer).is_some_and(|count| !number(count)) {
            let field = pointer.replace('/', ".");
            return bad(
                "Scale",
                format!("json: cannot unmarshal into Go struct field {owner}{field} of type int32"),
            );
        }
    }
    let mut unknown = Vec::new();
    for (part, known) in [
        ("", &["apiVersion", "kind", "metadata", "spec", "status"][..]),
        ("spec", &["replicas"]),
        ("status", &["replicas", "selector"]),
    ] {
        let fields = if part.is_empty() {
            Some(value)
        } else {
            value.get(part)
        };
        let fields = fields.and_then(Value::as_object).into_iter().flatten();
        for (name, _) in fields.filter(|(name, _)| !known.contains(&name.as_str())) {
            let dot = if part.is_empty() { "" } else { "." };
            unknown.push(format!("unknown field \"{part}{dot}{name}\""));
        }
    }
    write::report(call, options.validation, &unknown)
}

/// Makes the change to the object that a Scale asks for.
pub(super) fn apply(
    call: &Call,
    scale: &Scale,
    after: &Value,
    object: &mut Value,
    replaced: bool,
) -> Result<()> {
    let replicas = after
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if call.resource.builtin.is_some() {
        let metadata = after.get("metadata").unwrap_or(&Value::Null);
        let mut causes =
            object_meta::validate_create(metadata, true, object_meta::NameRule::Subdomain, "metadata");
        if replicas < 0 {
            let detail = "must be greater than or equal to 0";
            causes.push(Cause::invalid("spec.replicas", &replicas.into(), detail));
        }
        if !causes.is_empty() {
            let name = &call.target.name;
            return Err(Failure::invalid("autoscaling", "Scale", name, &causes));
        }
    }
    let (uid, live) = (meta::text(after, "uid"), meta::text(object, "uid"));
    if !replaced && call.resource.builtin.is_some() && !uid.is_empty() && uid != live {
        return Err(Failure::conflict(
            &call.resource.group,
            &format!("{}/scale", call.resource.plural),
            &call.target.name,
            &format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {live}"),
        ));
    }
    set(object, &scale.spec, replicas.into());
    meta::edit(object, |metadata| {
        // Without them in the request, the current ones are meant.
        for name in ["resourceVersion", "uid"] {
            let given = meta::text(after, name);
            if !given.is_empty() && (replaced || name != "uid") {
                metadata.insert(name.into(), given.into());
            }
        }
    });
    Ok(())
}

pub(super) fn show(scale: &Scale, value: &Value) -> Value {
    let number = |path: &str| {
        jsonpath::find(value, path)
            .first()
            .and_then(|v| v.as_i64())
            .unwrap_or(0)
    };
    let metadata: Map<String, Value> = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .into_iter()
        .filter_map(|name| {
            Some((
                name.to_owned(),
                value.pointer(&format!("/metadata/{name}"))?.clone(),
            ))
        })
        .collect();
    let mut status = json!({ "replicas": number(&scale.status) });
    let selector = scale
        .selector
        .as_ref()
        .and_then(|path| jsonpath::find(value, path).first().copied());
    if let (Some(selector), Some(map)) = (selector.and_then(selector_text), status.as_object_mut()) {
        map.insert("selector".into(), selector.into());
    }
    let replicas = number(&scale.spec);
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({ "replicas": replicas })
    };
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

/// Text as it is; a selector by labels, or a plain map of them, as `a=b,c in (d,e)`.
fn selector_text(value: &Value) -> Option<String> {
    let map = match value {
        Value::String(text) => return Some(text.clone()),
        Value::Object(map) => map,
        _ => return None,
    };
    let structured = map.contains_key("matchLabels") || map.contains_key("matchExpressions");
    let labels = if structured {
        map.get("matchLabels").and_then(Value::as_object)
    } else {
        Some(map)
    };
    let labels = labels.into_iter().flatten();
    let mut parts: Vec<(String, String)> = labels
        .filter_map(|(key, value)| Some((key.clone(), format!("{key}={}", value.as_str()?))))
        .collect();
    let expressions = map.get("matchExpressions").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array);
        let mut values: Vec<&str> = values.into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let (key, values) = (text("key"), values.join(","));
        let part = match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    Some(parts.join(",")).filter(|text| !text.is_empty())
}

/// Sets a field by a path of plain names.
fn set(value: &mut Value, path: &str, field: Value) {
    let names: Vec<&str> = path.split('.').filter(|name| !name.is_empty()).collect();
    let Some((last, parents)) = names.split_last() else {
        return;
    };
    let mut at = value;
    for name in parents {
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(*name).or_insert_with(|| json!({}));
    }
    if let Some(map) = at.as_object_mut() {
        map.insert((*last).to_owned(), field);
    }
}
