//! The scale of an object: a number, reached without knowing the kind.

use std::sync::PoisonError;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::call::Scaling;
use super::patch::refuse;
use super::update::{How, check_name, modify};
use super::{Call, meta, write};
use crate::http::{Body, decode_body, media_type};
use crate::jsonpath;
use crate::patch as engine;
use crate::registry::Scale;
use crate::schema::Cause;
use crate::status::{Failure, Result};

pub(super) async fn answer(call: &Call, verb: &str, body: &Bytes) -> Result<Response<Body>> {
    let accept = call.accept()?;
    let version = call.version()?;
    let scale = version.scale.as_ref().ok_or_else(Failure::no_such_path)?;
    if verb == "get" {
        let shown = show(scale, &call.current()?.value());
        return accept.media.respond(StatusCode::OK, shown.to_string().into());
    }
    let options = write::options(
        call,
        if verb == "update" {
            "UpdateOptions"
        } else {
            "PatchOptions"
        },
    )?;
    let bytes = body;
    let kind = media_type(&call.headers).to_owned();
    let sent = if verb == "update" {
        let decoded = decode_body(&call.headers, bytes)?;
        let sent = decoded
            .map_err(|error| Failure::bad_request(format!("error decoding Scale: {error}")))?
            .value;
        read(call, &sent, &options)?;
        check_name(call, &sent)?;
        Some(sent)
    } else {
        None
    };
    // To the rest of the server this is a change of the object itself.
    let mut whole = call.detached();
    whole.headers = call.headers.clone();
    let make = |live: Option<&Value>| {
        let live = live.ok_or_else(|| call.not_found())?;
        let before = show(scale, live);
        let after = match (&sent, kind.as_str()) {
            (Some(sent), _) => sent.clone(),
            (None, "application/json-patch+json") => engine::json_patch(&before, bytes).map_err(refuse)?,
            (None, "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
                engine::merge_patch(&before, bytes).map_err(refuse)?
            }
            _ => {
                return Err(Failure::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ]));
            }
        };
        if sent.is_none() {
            let shown = Value::from(after.to_string());
            read(call, &after, &options).map_err(|failure| {
                Failure::invalid("", "", "", &[Cause::invalid("patch", &shown, failure.message())])
            })?;
        }
        let mut new = live.clone();
        apply(call, scale, &after, &mut new)?;
        let scaling = scaling(call, &options, scale, live, before, after);
        *whole.scale.lock().unwrap_or_else(PoisonError::into_inner) = Some(scaling);
        Ok(new)
    };
    let how = if sent.is_some() { How::Replace } else { How::Patch };
    let (code, value, rv) = modify(&whole, &options, how, &make).await?;
    call.take_warnings(&whole);
    if let Some(rv) = rv {
        call.durable(rv).await?;
    }
    accept.media.respond(code, show(scale, &value).to_string().into())
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

/// What those see who may change a Scale on its way: who owns its one field, before and after.
fn scaling(
    call: &Call,
    options: &write::Options,
    scale: &Scale,
    live: &Value,
    mut before: Value,
    mut after: Value,
) -> Scaling {
    let path = scale.spec.replace('.', "/f:");
    let entries = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|entry| {
            entry
                .get("fieldsV1")
                .is_some_and(|fields| fields.pointer(&path).is_some())
        })
        .filter_map(|entry| {
            let mut entry = entry.as_object()?.clone();
            entry.insert("apiVersion".into(), "autoscaling/v1".into());
            entry.insert("fieldsV1".into(), json!({ "f:spec": { "f:replicas": {} } }));
            Some(Value::Object(entry))
        });
    let entries: Vec<Value> = entries.collect();
    meta::edit(&mut before, |metadata| {
        metadata.insert("managedFields".into(), entries.into())
    });
    if let Some(map) = after.as_object_mut() {
        map.entry("status").or_insert_with(|| json!({ "replicas": 0 }));
    }
    super::ownership::track_scale(call, options, &before, &mut after);
    Scaling { before, after }
}

/// Makes the change to the object that a Scale asks for.
pub(super) fn apply(call: &Call, scale: &Scale, after: &Value, object: &mut Value) -> Result<()> {
    let replicas = after
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if replicas < 0 && call.resource.builtin.is_some() {
        return Err(Failure::invalid(
            "autoscaling",
            "Scale",
            &call.target.name,
            &[Cause::invalid(
                "spec.replicas",
                &replicas.into(),
                "must be greater than or equal to 0",
            )],
        ));
    }
    set(object, &scale.spec, replicas.into());
    meta::edit(object, |metadata| {
        // Without them in the request, the current ones are meant.
        for name in ["resourceVersion", "uid"] {
            let given = meta::text(after, name);
            if !given.is_empty() {
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

/// Text as it is; `matchLabels` and plain maps as `a=b,c=d`.
fn selector_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(map) => {
            let labels = map.get("matchLabels").and_then(Value::as_object).unwrap_or(map);
            let pairs: Vec<String> = labels
                .iter()
                .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
                .collect();
            Some(pairs.join(","))
        }
        _ => None,
    }
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
