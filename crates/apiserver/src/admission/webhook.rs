//! Calling webhooks.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{Client, Target};
use super::request::text;
use super::{Decode, Operation, Rejection, Request, Source, expressions, rules};
use crate::patch;

/// A call that is to be made.
#[derive(Debug)]
pub(super) struct Call {
    place: rules::Place,
}

/// The webhooks of a configuration.
pub(super) fn hooks(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration
        .get("webhooks")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn ignores_failures(hook: &Value) -> bool {
    text(hook, "/failurePolicy") == "Ignore"
}

/// Whether the webhook wants the request, and in which group and version.
pub(super) fn matching(
    source: &dyn Source,
    request: &Request,
    hook: &Value,
    object: Option<&Value>,
) -> Result<Option<Call>, Rejection> {
    let selectors = rules::namespace_matches(source, hook.get("namespaceSelector"), request, object)
        .and_then(|ns| Ok(ns && rules::object_matches(hook.get("objectSelector"), request, object)?));
    match selectors {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(e) => return Err(Rejection::internal(&e)),
    }
    let all: Vec<&Value> = hook
        .get("rules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    let Some(place) = rules::matching_place(source, &all, request, text(hook, "/matchPolicy")) else {
        return Ok(None);
    };
    let conditions = hook
        .get("matchConditions")
        .filter(|c| c.as_array().is_some_and(|c| !c.is_empty()));
    if conditions.is_some() {
        let mut activation = expressions::activation(source, request, &place, object);
        // It may be named, but only policies are told.
        activation.bind("namespaceObject", &Value::Null);
        match expressions::conditions_hold(conditions, &activation) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) if ignores_failures(hook) => return Ok(None),
            Err(e) => return Err(request.forbidden(&e)),
        }
    }
    Ok(Some(Call { place }))
}

enum Refusal {
    /// The webhook said no, or the request cannot be sent to it.
    Final(Rejection),
    /// The webhook could not be asked: its failure policy decides.
    Failed(String),
}

/// Asks a webhook; it may answer with a patch.
async fn ask(
    client: &Client,
    source: &dyn Source,
    request: &Request,
    hook: &Value,
    call: &Call,
    object: Option<&Value>,
    mutating: bool,
) -> Result<Option<Vec<u8>>, Refusal> {
    let name = text(hook, "/name");
    if request.dry_run && !matches!(text(hook, "/sideEffects"), "None" | "NoneOnDryRun") {
        let why = format!(
            "admission webhook {} does not support dry run",
            crate::schema::quote(name)
        );
        return Err(Refusal::Final(Rejection::bad_request(why)));
    }
    let target =
        Target::read(hook.get("clientConfig").unwrap_or(&Value::Null), source).map_err(Refusal::Failed)?;
    let seconds = hook
        .get("timeoutSeconds")
        .and_then(Value::as_u64)
        .unwrap_or(10)
        .clamp(1, 30);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request.review(&call.place, object),
    });
    let failed = |why: String| Refusal::Failed(format!("failed to call webhook: {why}"));
    let reply = client
        .post(&target, &review, Duration::from_secs(seconds))
        .await
        .map_err(failed)?;
    let invalid = |why: String| Refusal::Failed(format!("received invalid webhook response: {why}"));
    let response = reply.get("response").filter(|r| r.is_object());
    let response = response.ok_or_else(|| invalid("webhook response was absent".into()))?;
    if text(&reply, "/apiVersion") != "admission.k8s.io/v1" || text(&reply, "/kind") != "AdmissionReview" {
        return Err(invalid(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
            text(&reply, "/apiVersion"),
            text(&reply, "/kind")
        )));
    }
    if text(response, "/uid") != request.uid {
        return Err(invalid(format!(
            "expected response.uid={:?}, got {:?}",
            request.uid,
            text(response, "/uid")
        )));
    }
    let encoded = bytes(response.get("patch").unwrap_or(&Value::Null)).map_err(invalid)?;
    let patch = match (encoded.is_empty(), text(response, "/patchType")) {
        (true, "") => None,
        (_, _) if !mutating => {
            return Err(invalid("validating webhook may not return response.patch".into()));
        }
        // A patch that does nothing is none.
        (false, "JSONPatch") => Some(encoded).filter(|patch| patch.trim_ascii() != b"[]"),
        (false, "") => {
            return Err(invalid(
                "webhook returned response.patch but not response.patchType".into(),
            ));
        }
        (true, _) => {
            return Err(invalid(
                "webhook returned response.patchType but not response.patch".into(),
            ));
        }
        (_, other) => {
            return Err(invalid(format!(
                "webhook returned invalid response.patchType of {other:?}"
            )));
        }
    };
    let warnings = response.get("warnings").and_then(Value::as_array);
    for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
        source.warn(warning);
    }
    if response.get("allowed").and_then(Value::as_bool) != Some(true) {
        return Err(Refusal::Final(denied(
            name,
            response.get("status").unwrap_or(&Value::Null),
        )));
    }
    Ok(patch)
}

/// Bytes as Go reads them: base64, or an array of numbers.
fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::Array(list) => list
            .iter()
            .map(|item| {
                item.as_u64()
                    .and_then(|n| u8::try_from(n).ok())
                    .ok_or_else(|| format!("{item} is no byte"))
            })
            .collect(),
        other => STANDARD
            .decode(other.as_str().unwrap_or_default())
            .map_err(|e| e.to_string()),
    }
}

/// The webhook's own status, with its name in front.
fn denied(name: &str, status: &Value) -> Rejection {
    let by = format!(
        "admission webhook {} denied the request",
        crate::schema::quote(name)
    );
    let message = match (text(status, "/message"), text(status, "/reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status
        .get("code")
        .and_then(Value::as_u64)
        .and_then(|c| u16::try_from(c).ok())
        .unwrap_or(0);
    Rejection {
        code: if (400..600).contains(&code) { code } else { 400 },
        reason: text(status, "/reason").to_owned(),
        message,
        details: status.get("details").filter(|d| d.is_object()).cloned(),
    }
}

/// Applies the failure policy.
fn settle(outcome: Result<Option<Vec<u8>>, Refusal>, hook: &Value) -> Result<Option<Vec<u8>>, Rejection> {
    match outcome {
        Ok(patch) => Ok(patch),
        Err(Refusal::Final(rejection)) => Err(rejection),
        Err(Refusal::Failed(why)) => {
            let why = format!(
                "failed calling webhook {}: {why}",
                crate::schema::quote(text(hook, "/name"))
            );
            if ignores_failures(hook) {
                tracing::warn!(%why, "webhook failed, its policy is to ignore that");
                return Ok(None);
            }
            Err(Rejection::internal(&why))
        }
    }
}

/// Calls a mutating webhook and applies its patch.
pub(super) async fn mutate(
    client: &Client,
    source: &dyn Source,
    request: &Request,
    hook: &Value,
    call: &Call,
    object: &mut Value,
    decode: &Decode<'_>,
) -> Result<(), Rejection> {
    let deletes = request.operation == Operation::Delete;
    let shown = (!deletes).then_some(&*object);
    let outcome = ask(client, source, request, hook, call, shown, true).await;
    match settle(outcome, hook)? {
        None => Ok(()),
        Some(_) if deletes => Err(Rejection::internal(&format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            crate::schema::quote(text(hook, "/name"))
        ))),
        Some(bytes) => {
            // The patch is for the object as it was shown.
            let shown = request.shown_at(&call.place, object);
            let mut patched =
                patch::json_patch(&shown, &bytes).map_err(|e| Rejection::internal(&e.to_string()))?;
            request.read_at(&call.place, &mut patched, object)?;
            decode(&mut patched)?;
            *object = patched;
            Ok(())
        }
    }
}

/// Calls a validating webhook.
pub(super) async fn validate(
    client: &Client,
    source: &dyn Source,
    request: &Request,
    hook: &Value,
    call: &Call,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    let outcome = ask(client, source, request, hook, call, object, false).await;
    settle(outcome, hook).map(drop)
}
