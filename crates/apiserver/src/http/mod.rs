//! From an HTTP request to an answer: who, may they, what.

mod accept;
mod body;
mod protobuf;
mod target;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Method, Request, Response};
use writ_authz::{Attributes, ResourceAttributes};

pub(crate) use accept::{Accept, Media, Shape, json, negotiate, text};
pub(crate) use body::{decode as decode_body, json as decode_json, media_type, summary, yaml as decode_yaml};
pub(crate) use target::{Query, Route, Target, decode, route};

use self::body::read as read_body;
use crate::api::{self, Call};
use crate::auth::{self, Peer, User};
use crate::state::State;
use crate::status::{Failure, Result};

/// Bodies of requests and answers.
pub(crate) type Body = axum::body::Body;

/// Answers one request. Never fails: what goes wrong is an answer.
pub(crate) async fn handle(state: &Arc<State>, request: Request<Body>) -> Response<Body> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    match answer(state, request).await {
        Ok(response) => response,
        Err(failure) => failure.response(),
    }
}

async fn answer(state: &Arc<State>, request: Request<Body>) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    // Read before anything is refused: a client that still sends when the answer comes may miss it.
    let body = if is_read(&parts.method) {
        Ok(Bytes::new())
    } else {
        read_body(body).await
    };
    let user = auth::authenticate(state, &parts.headers, parts.extensions.get::<Peer>())?;
    let user = auth::impersonate(state, user, &parts.headers)?;
    let query = Query::parse(parts.uri.query());
    match route(parts.uri.path()) {
        Route::Other(path) => {
            let verb = parts.method.as_str().to_lowercase();
            if !state
                .authorizer
                .allows(&user, &Attributes::non_resource(&verb, &path))
            {
                return Err(Failure::forbidden(
                    "",
                    "",
                    "",
                    &format!("User {:?} cannot {verb} path {path:?}", user.name),
                ));
            }
            api::paths::answer(state, &parts.method, &path, &query, &parts.headers)
        }
        Route::Resource(target) => {
            let verb = target.verb(&parts.method, &query);
            authorize(state, &user, verb, &target, &query)?;
            let snapshot = state.registry.snapshot();
            let Some(resource) = snapshot
                .find(&target.group, &target.version, &target.resource)
                .cloned()
            else {
                return Err(if snapshot.is_builtin(&target.group) {
                    Failure::no_such_resource()
                } else {
                    Failure::no_such_path()
                });
            };
            let call = Call::new(
                state.clone(),
                user,
                parts.method,
                target,
                query,
                parts.headers,
                resource,
            );
            let mut response = match call.answer(verb, &body?).await {
                Ok(response) => response,
                Err(failure) => failure.response(),
            };
            // What admission warned about is said even when the answer is no.
            call.add_warnings(response.headers_mut());
            Ok(response)
        }
    }
}

fn authorize(state: &State, user: &User, verb: &str, target: &Target, query: &Query) -> Result<()> {
    // A list of one named object may be allowed by a rule with resource names.
    let single = matches!(verb, "list" | "watch" | "deletecollection")
        .then(|| query.get("fieldSelector").and_then(single_name))
        .flatten();
    let attributes = ResourceAttributes {
        verb,
        group: &target.group,
        resource: &target.resource,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: single.as_deref().unwrap_or(&target.name),
    };
    if state.authorizer.allows(user, &Attributes::Resource(attributes)) {
        return Ok(());
    }
    Err(Failure::forbidden(
        &target.group,
        &target.resource,
        &target.name,
        &refusal(user, &attributes),
    ))
}

/// The words of a 403.
pub(crate) fn refusal(user: &User, attributes: &ResourceAttributes<'_>) -> String {
    let ResourceAttributes {
        verb,
        group,
        resource,
        subresource,
        namespace,
        ..
    } = attributes;
    let what = if subresource.is_empty() {
        (*resource).to_owned()
    } else {
        format!("{resource}/{subresource}")
    };
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    format!(
        "User {:?} cannot {verb} resource {what:?} in API group {group:?} {place}",
        user.name
    )
}

fn single_name(selector: &str) -> Option<String> {
    let selector = crate::selector::FieldSelector::parse(selector).ok()?;
    selector
        .requirements()
        .iter()
        .find(|requirement| requirement.field == "metadata.name" && !requirement.negated)
        .map(|requirement| requirement.value.clone())
}

/// Whether the method may be used on this path at all.
pub(crate) fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
