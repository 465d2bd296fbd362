//! PATCH in its four kinds.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::update::{How, finish, modify};
use super::write::{self, Options};
use super::{Call, meta};
use crate::http::{Body, media_type, read_body};
use crate::patch::{self as engine, PatchError};
use crate::schema::Cause;
use crate::status::{Failure, Result};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const APPLY_CBOR: &str = "application/apply-patch+cbor";

pub(super) async fn patch(call: &Call, body: Body) -> Result<Response<Body>> {
    call.accept()?;
    let kind = media_type(&call.headers).to_owned();
    let builtin = call.resource.builtin.is_some();
    match kind.as_str() {
        JSON | MERGE => {}
        _ if builtin => {
            return Err(Failure::unsupported_media_type(&[
                JSON, MERGE, STRATEGIC, APPLY, APPLY_CBOR,
            ]));
        }
        _ => return Err(Failure::unsupported_media_type(&[JSON, MERGE, APPLY, APPLY_CBOR])),
    }
    let options = check_options(call, &kind)?;
    let bytes = read_body(body).await?;
    let done = change(call, &options, &kind, &bytes).await?;
    finish(call, done).await
}

fn check_options(call: &Call, kind: &str) -> Result<Options> {
    let options = write::options(call, "PatchOptions")?;
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
    if causes.is_empty() {
        Ok(options)
    } else {
        Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &causes))
    }
}

async fn change(call: &Call, options: &Options, kind: &str, bytes: &Bytes) -> Result<super::update::Done> {
    modify(call, options, How::Patch, &|live| {
        let live = live.ok_or_else(|| call.not_found())?;
        let patched = match kind {
            JSON => engine::json_patch(live, bytes),
            _ => engine::merge_patch(live, bytes),
        };
        let mut new = patched.map_err(|error| refuse(call, error))?;
        same_identity(call, live, &mut new)?;
        let problems = write::shape(call, &mut new)?;
        write::report(call, options.validation, &problems)?;
        Ok(new)
    })
    .await
}

fn refuse(call: &Call, error: PatchError) -> Failure {
    let _ = call;
    match error {
        PatchError::Malformed(message) => Failure::bad_request(message),
        PatchError::Unprocessable(message) => Failure::new(422, "Invalid", message),
    }
}

/// A patch cannot make an object another one.
fn same_identity(call: &Call, live: &Value, new: &mut Value) -> Result<()> {
    for field in ["apiVersion", "kind"] {
        if new.get(field) != live.get(field) {
            let text = |value: &Value| {
                value
                    .get(field)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            if field == "apiVersion" {
                return Err(Failure::bad_request(format!(
                    "the API version in the data ({}) does not match the expected API version ({})",
                    text(new),
                    text(live)
                )));
            }
            return Err(Failure::bad_request(format!(
                "the kind in the data ({}) does not match the expected kind ({})",
                text(new),
                text(live)
            )));
        }
    }
    let name = meta::text(new, "name");
    if name != call.target.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.target.name
        )));
    }
    write::check_place(call, new)
}
