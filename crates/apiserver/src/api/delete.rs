//! DELETE, of one object and of a collection.

use bytes::Bytes;
use http::{Response, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::Value;

use super::ending::{DeleteWish, Deleted, Propagation, remove};
use super::{Call, admit, list, meta};
use crate::http::{Body, decode_body};
use crate::registry::Resource;
use crate::schema::Cause;
use crate::status::{Failure, Result, success};

fn invalid(causes: &[Cause]) -> Failure {
    Failure::invalid("meta.k8s.io", "DeleteOptions", "", causes)
}

/// The options of a deletion: in the body, or else in the query.
fn given(call: &Call, bytes: &[u8]) -> Result<DeleteOptions> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let query = &call.query;
        let dry_run = query.all("dryRun");
        return Ok(DeleteOptions {
            propagation_policy: query.first("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.optional_flag("orphanDependents"),
            dry_run: (!dry_run.is_empty()).then(|| dry_run.into_iter().map(str::to_owned).collect()),
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            ..DeleteOptions::default()
        });
    }
    let refuse = |error: String| Failure::bad_request(format!("error decoding DeleteOptions: {error}"));
    let value = decode_body(&call.headers, bytes, ("v1", "DeleteOptions"))?
        .map_err(refuse)?
        .value;
    // Something of another type is refused: what was meant to be spared must not be deleted.
    let options: DeleteOptions = serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
    match options.kind.as_deref().unwrap_or_default() {
        "" | "DeleteOptions" => Ok(options),
        kind => Err(Failure::bad_request(format!(
            "decoded object cannot be converted to DeleteOptions: {kind}"
        ))),
    }
}

fn wish(call: &Call, bytes: &[u8]) -> Result<DeleteWish> {
    let options = given(call, bytes)?;
    let mut causes = Vec::new();
    let policy = options.propagation_policy.as_deref();
    if let (Some(policy), Some(_)) = (policy, options.orphan_dependents) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(Cause::invalid("propagationPolicy", &policy.into(), detail));
    }
    let mut propagation = match policy {
        None => None,
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::not_supported("propagationPolicy", &other.into(), &known));
            None
        }
    };
    if let Some(orphan) = options.orphan_dependents {
        propagation = Some(match &*call.resource.table {
            _ if orphan => Propagation::Orphan,
            "namespaces" => Propagation::Foreground,
            _ => Propagation::Background,
        });
    }
    let dry_run = options.dry_run.as_deref().unwrap_or_default();
    if dry_run.iter().any(|value| value != "All") {
        causes.push(Cause::not_supported("dryRun", &dry_run.into(), &["All"]));
    }
    if !causes.is_empty() {
        return Err(invalid(&causes));
    }
    let dry_run = !dry_run.is_empty();
    let shown = DeleteOptions {
        kind: None,
        api_version: None,
        dry_run: options.dry_run.filter(|_| dry_run),
        ..options
    };
    let preconditions = shown.preconditions.as_ref();
    Ok(DeleteWish {
        propagation,
        uid: preconditions.and_then(|it| it.uid.clone()),
        rv: preconditions.and_then(|it| it.resource_version.clone()),
        grace: shown.grace_period_seconds,
        dry_run,
        shown: serde_json::to_value(&shown).map_err(Failure::internal)?,
    })
}

pub(super) async fn delete(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let wish = wish(call, body)?;
    call.writable()?;
    warn_of_orphans(call, &wish);
    admit::forbid_delete_named(call)?;
    let current = call.current()?;
    match remove(call, &current, &wish).await? {
        Deleted::Marked(value, rv) => {
            call.durable(rv).await?;
            // Still there, until others are done with it.
            let waits = wish.shown.get("orphanDependents") == Some(&Value::Bool(false));
            let code = if waits {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            call.respond_value(code, &value)
        }
        Deleted::Gone(value, rv) => {
            call.durable(rv).await?;
            if returns_object(&call.resource) {
                return call.respond_value(StatusCode::OK, &value);
            }
            let status = success(&details(&call.resource, &value)).to_string();
            call.accept()?.media.respond(StatusCode::OK, status.into())
        }
    }
}

/// What the answer says of an object that is gone.
fn details(resource: &Resource, value: &Value) -> Value {
    let all = [
        ("name", meta::text(value, "name")),
        ("kind", &resource.plural),
        ("uid", meta::text(value, "uid")),
        ("group", &resource.group),
    ];
    let known = all.into_iter().filter(|(_, text)| !text.is_empty());
    known
        .map(|(name, text)| (name.to_owned(), Value::from(text)))
        .collect()
}

/// Pods of a job stay, unless it is said what becomes of them.
fn warn_of_orphans(call: &Call, wish: &DeleteWish) {
    if &*call.resource.table == "jobs.batch" && wish.propagation.is_none() {
        call.warn(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set \
             propagationPolicy=Orphan to suppress this warning",
        );
    }
}

/// A few kinds answer with the object that is gone.
fn returns_object(resource: &Resource) -> bool {
    matches!(
        &*resource.table,
        "pods"
            | "podtemplates"
            | "serviceaccounts"
            | "services"
            | "persistentvolumes"
            | "persistentvolumeclaims"
            | "namespaces"
            | "resourcequotas"
            | "storageclasses.storage.k8s.io"
    )
}

/// Deletes everything that a list with the same parameters would show.
pub(super) async fn delete_collection(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    let accept = call.accept()?;
    list::check_options(call, call.query.flag("watch"))?;
    let wish = wish(call, body)?;
    call.writable()?;
    warn_of_orphans(call, &wish);
    let (page, position) = list::page(call)?;
    let mut newest = page.rv;
    for object in &page.objects {
        match remove(call, object, &wish).await {
            Ok(Deleted::Marked(_, rv) | Deleted::Gone(_, rv)) => newest = newest.max(rv),
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    call.durable(newest).await?;
    // The answer shows what was found, not what became of it.
    list::render(call, &accept, &page, position)
}
