//! PATCH in its four kinds.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::update::{Done, How, check_name, check_no_uid, finish, modify};
use super::write::{self, Options, Validation};
use super::{Call, meta, ownership};
use crate::go_numbers::without_whole_floats;
use crate::http::{Body, decode_json, decode_yaml, media_type};
use crate::patch::{self as engine, PatchError};
use crate::schema::Cause;
use crate::status::{Failure, Result};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(super) async fn patch(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let kind = media_type(&call.headers).to_owned();
    supported(call, &kind)?;
    let options = check_options(call, &kind)?;
    let bytes = body;
    let done = if kind == APPLY {
        apply(call, &options, bytes).await?
    } else {
        change(call, &options, &kind, bytes).await?
    };
    finish(call, done).await
}

/// Whether this kind of patch is taken.
pub(super) fn supported(call: &Call, kind: &str) -> Result<()> {
    let builtin = call.resource.builtin.is_some();
    match kind {
        JSON | MERGE | APPLY => Ok(()),
        STRATEGIC if builtin => Ok(()),
        _ if builtin => Err(
            Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with_details(serde_json::json!({})),
        ),
        _ => Err(Failure::unsupported_media_type(&[JSON, MERGE, APPLY])),
    }
}

pub(super) fn check_options(call: &Call, kind: &str) -> Result<Options> {
    let mut options = write::options(call, "PatchOptions")?;
    let mut causes = Vec::new();
    if kind == APPLY {
        if call.query.get("fieldManager").is_none() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
    } else if call.query.has("force") {
        causes.push(Cause::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
    options.force = kind == APPLY && call.query.flag("force");
    if causes.is_empty() {
        Ok(options)
    } else {
        Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &causes))
    }
}

async fn change(call: &Call, options: &Options, kind: &str, bytes: &Bytes) -> Result<Done> {
    let schema = ownership::schema(call)?;
    let mut odd = Ok(Vec::new());
    let strategic = match kind {
        // A patch that is merged as a tree says of a whole number only that it is one.
        STRATEGIC => {
            let decoded = decode_json(bytes).map_err(|error| format!("error decoding patch: {error}"));
            let (patch, duplicates) = decoded.map_or_else(
                |error| (Value::Null, Err(PatchError::Malformed(error))),
                |decoded| (without_whole_floats(decoded.value), Ok(decoded.duplicates)),
            );
            odd = duplicates;
            Some(patch)
        }
        _ if options.validation == Validation::Ignore => None,
        JSON => {
            odd = engine::json_patch_problems(bytes);
            None
        }
        _ => {
            let decoded = decode_json(bytes);
            odd = Ok(decoded.map_or_else(|_| Vec::new(), |decoded| decoded.duplicates));
            None
        }
    };
    modify(call, options, How::Patch, &|live| {
        let live = live.ok_or_else(|| call.not_found())?;
        let mut problems = odd.clone().map_err(refuse)?;
        let patched = match (&strategic, kind) {
            (Some(patch), _) => engine::strategic_merge(live, patch, &schema),
            (None, JSON) => engine::json_patch(live, bytes),
            (None, _) => engine::merge_patch(live, bytes),
        };
        let mut new = patched.map_err(refuse)?;
        if strategic.is_some() {
            // What it makes is read as what the path says.
            if let Some(object) = new.as_object_mut() {
                let version = object.entry("apiVersion");
                version.or_insert_with(|| call.api_version().into());
            }
            schema.cut_integers(&mut new);
        }
        same_type(call, options, live, &mut new)?;
        let shown = Value::from(new.to_string());
        let invalid = |failure: Failure| refuse_made(&shown, failure.message());
        problems.extend(write::shape(call, &mut new).map_err(invalid)?);
        write::report(call, options.validation, &problems)
            .map_err(|_| refuse_made(&shown, &write::strict_error(&problems)))?;
        same_name(call, &new)?;
        write::check_place(call, &mut new)?;
        Ok(new)
    })
    .await
}

pub(super) fn refuse(error: PatchError) -> Failure {
    match error {
        PatchError::Malformed(message) => Failure::bad_request(message),
        PatchError::Unprocessable(_) => Failure::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(serde_json::json!({})),
        PatchError::Internal(message) => Failure::new(500, "", message),
    }
}

/// A patch cannot make an object another one.
fn same_name(call: &Call, new: &Value) -> Result<()> {
    let name = meta::text(new, "name");
    if name == call.target.name {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        call.target.name
    )))
}

/// A patch cannot change what an object is. It may leave that out, which has its own answers.
fn same_type(call: &Call, options: &Options, live: &Value, new: &mut Value) -> Result<()> {
    let text = |value: &Value, field: &str| {
        let text = value.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let builtin = call.resource.builtin.is_some();
    let shown = Value::from(new.to_string());
    for field in ["kind", "apiVersion"] {
        let (given, wanted) = (text(new, field), text(live, field));
        if given == wanted {
            continue;
        }
        if builtin && let Some(why) = write::not_text(field, new) {
            return Err(refuse_made(&shown, &why));
        }
        let why = format!("must be {wanted}");
        match (given.as_str(), field) {
            _ if !new.is_object() => return Err(refuse_made(&shown, &why)),
            // The type is known from the path.
            ("", "kind") if builtin => {
                if let Some(map) = new.as_object_mut() {
                    map.insert("kind".into(), wanted.into());
                }
            }
            ("", "apiVersion") if builtin => return Err(unread(call, options, new, &shown)),
            ("", "kind") => return Err(refuse_made(&shown, "Object 'Kind' is missing")),
            ("", _) => {
                let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
                return Err(Failure::internal(why));
            }
            _ if builtin => return Err(refuse_made(&shown, &why)),
            _ => {
                let (group, kind) = (&call.resource.group, text(new, "kind"));
                let cause = Cause::invalid(field, &given.into(), &why);
                return Err(Failure::invalid(group, &kind, &call.target.name, &[cause]));
            }
        }
    }
    Ok(())
}

/// The object that a patch made cannot be read.
fn refuse_made(shown: &Value, why: &str) -> Failure {
    Failure::invalid("", "", "", &[Cause::invalid("patch", shown, why)])
}

/// Without a version, nothing is known of an object: every field is an unknown one, and it has no name.
fn unread(call: &Call, options: &Options, new: &Value, shown: &Value) -> Failure {
    let fields = new.as_object().into_iter().flat_map(|map| map.keys());
    let unknown: Vec<String> = fields
        .filter(|name| name.as_str() != "kind")
        .map(|name| format!("unknown field \"{name}\""))
        .collect();
    match write::report(call, options.validation, &unknown) {
        Err(_) => refuse_made(shown, &write::strict_error(&unknown)),
        Ok(()) => Failure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.target.name
        )),
    }
}

/// Reads a configuration of one kind; also says which fields were there twice.
pub(super) fn configuration(bytes: &Bytes, api_version: &str, kind: &str) -> Result<(Value, Vec<String>)> {
    let decoded =
        decode_yaml(bytes).map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))?;
    let config = decoded.value;
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (given_version, given_kind) = (text("apiVersion"), text("kind"));
    if given_version != api_version || given_kind != kind {
        return Err(Failure::bad_request(format!(
            "invalid object type: {given_version}, Kind={given_kind}"
        )));
    }
    Ok((config, decoded.duplicates))
}

async fn apply(call: &Call, options: &Options, bytes: &Bytes) -> Result<Done> {
    // Whether it can be read at all matters only if there is something to apply it to.
    let read = configuration(bytes, &call.api_version(), &call.resource.kind);
    let schema = ownership::schema(call)?;
    modify(call, options, How::Apply, &|live| {
        let (config, problems) = read.as_ref().map_err(Failure::clone)?;
        let mut new = ownership::apply(call, options, live, config, &schema)?;
        // What the schema does not know is an error of the apply itself.
        write::report(call, options.validation, problems)?;
        if live.is_none() {
            check_no_uid(call, &new)?;
        }
        if call.resource.namespaced {
            write::check_place(call, &mut new)?;
        }
        check_name(call, &new)?;
        Ok(new)
    })
    .await
}
