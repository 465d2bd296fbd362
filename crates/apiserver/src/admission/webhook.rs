//! Calling webhooks.

use std::time::Duration;

use serde_json::Value;

use super::answer::{self, Answer, Version};
use super::client::Client;
use super::request::text;
use super::target::Target;
use super::{Operation, Reader, Rejection, Request, Source, expressions, rules};
use crate::http::decode_json;
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
    let selected = rules::selected(source, hook, request, object);
    if matches!(selected, rules::Selected::No) {
        return Ok(None);
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
    if let rules::Selected::Failed(why) = selected {
        return Err(why);
    }
    let conditions = hook
        .get("matchConditions")
        .filter(|c| c.as_array().is_some_and(|c| !c.is_empty()));
    if conditions.is_some() {
        let mut activation = expressions::activation(source, request, &place, object);
        // It may be named, but only policies are told.
        activation.bind("namespaceObject", &Value::Null);
        match expressions::conditions_hold(conditions, request, &place, &activation) {
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
    let failed = |why: String| Refusal::Failed(format!("failed to call webhook: {why}"));
    let version = Version::of(hook).ok_or_else(|| {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        Refusal::Failed(why.into())
    })?;
    let target =
        Target::read(hook.get("clientConfig").unwrap_or(&Value::Null), source).map_err(Refusal::Failed)?;
    let seconds = hook
        .get("timeoutSeconds")
        .and_then(Value::as_u64)
        .unwrap_or(10)
        .clamp(1, 30);
    let review = version.review(&request.written(request.review(&call.place, object)));
    let reply = client
        .post(&target, &review, Duration::from_secs(seconds))
        .await
        .map_err(failed)?;
    let reply = answer::read(&reply, version).map_err(failed)?;
    let answer = answer::verify(&reply, version, &request.uid, mutating)
        .map_err(|why| Refusal::Failed(format!("received invalid webhook response: {why}")))?;
    for warning in &answer.warnings {
        source.warn(warning);
    }
    if !answer.allowed {
        return Err(Refusal::Final(answer::denied(name, &answer.status)));
    }
    usable(answer)
}

/// The patch of an answer, if it does anything.
fn usable(answer: Answer) -> Result<Option<Vec<u8>>, Refusal> {
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let undecodable =
        |why: &str| Refusal::Failed(format!("received undecodable patch in webhook response: {why}"));
    let patch = decode_json(&answer.patch).map_err(|why| undecodable(&why))?.value;
    let does_nothing = match &patch {
        Value::Null => true,
        Value::Array(operations) => operations.is_empty(),
        _ => {
            return Err(undecodable(
                "json: cannot unmarshal into Go value of type jsonpatch.Patch",
            ));
        }
    };
    match answer.patch_type.as_str() {
        _ if does_nothing => Ok(None),
        "JSONPatch" => Ok(Some(answer.patch)),
        other => Err(Refusal::Failed(format!("unsupported patch type {other:?}"))),
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

/// Calls a mutating webhook and applies its patch. Answers whether that changed the object, if there was one.
pub(super) async fn mutate(
    client: &Client,
    source: &dyn Source,
    request: &Request,
    hook: &Value,
    call: &Call,
    object: &mut Value,
    reader: &dyn Reader,
) -> Result<Option<bool>, Rejection> {
    let deletes = request.operation == Operation::Delete;
    let shown = (!deletes).then_some(&*object);
    let outcome = ask(client, source, request, hook, call, shown, true).await;
    match settle(outcome, hook)? {
        None => Ok(None),
        Some(_) if deletes => Err(Rejection::internal(&format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            crate::schema::quote(text(hook, "/name"))
        ))),
        Some(bytes) => {
            // The patch is for the object as it was shown.
            let shown = request.written(request.shown_at(&call.place, object));
            let mut patched =
                patch::json_patch(&shown, &bytes).map_err(|e| Rejection::internal(&e.to_string()))?;
            // That it calls itself another version is forgotten when it is read.
            let renamed = patched.get("apiVersion") != shown.get("apiVersion");
            request.read_at(&call.place, &mut patched, object)?;
            reader.read(&mut patched)?;
            // What is filled in afterwards does not undo a change.
            let differs = renamed || !reader.same(object, &patched);
            reader.fill(&mut patched, &call.place.version)?;
            *object = patched;
            Ok(Some(differs))
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
