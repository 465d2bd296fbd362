//! From an HTTP request to an answer: who, may they, what.

mod accept;
mod aside;
mod body;
mod characters;
mod compress;
mod deadline;
pub(crate) mod kept;
mod protobuf;
mod target;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use writ_authz::{Attributes, ResourceAttributes};

pub(crate) use accept::{Accept, Media, REPRESENTATIONS, Shape, acceptable, accepted, json, negotiate, text};
pub(crate) use aside::Slow;
pub(crate) use body::{
    NAMED, decode as decode_body, escape_marks, json as decode_json, media_type, mended, summary,
    yaml as decode_yaml,
};
pub(crate) use deadline::left as time_left;
pub(crate) use protobuf::{decode as decode_protobuf, is_protobuf};
pub(crate) use target::{Query, Route, Target, decode, decode_whole, route};

use self::aside::Sort;
use self::body::read as read_body;
use crate::api::{self, Call};
use crate::auth::{self, Peer, User};
use crate::selector::{FieldSelector, LabelSelector};
use crate::state::State;
use crate::status::{Failure, Result};

/// Bodies of requests and answers.
pub(crate) type Body = axum::body::Body;

/// Answers one request. Never fails: what goes wrong is an answer.
pub(crate) async fn handle(state: &Arc<State>, request: Request<Body>) -> Response<Body> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let wanted = request.headers().get(header::ACCEPT).cloned();
    let path = compress::accepted(request.headers()).then(|| request.uri().path().to_owned());
    let mut warnings = Vec::new();
    let mut response = match answer(state, request, &mut warnings).await {
        Ok(response) => response,
        Err(failure) => refuse(&failure, wanted.as_ref()),
    };
    for warning in warnings {
        if let Ok(warning) = HeaderValue::try_from(format!("299 - \"{warning}\"")) {
            response.headers_mut().append(header::WARNING, warning);
        }
    }
    // Who does not say otherwise may not keep an answer.
    response
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
    match path {
        Some(path) => compress::compress(&path, response).await,
        None => response,
    }
}

/// A refusal, in the form that the client can read best.
fn refuse(failure: &Failure, wanted: Option<&HeaderValue>) -> Response<Body> {
    let mut headers = HeaderMap::new();
    headers.extend(wanted.map(|wanted| (header::ACCEPT, wanted.clone())));
    let yaml = negotiate(&headers, false, true).is_ok_and(|accept| accept.media == Media::Yaml);
    if yaml
        && !failure.is_plain()
        && let Ok(code) = StatusCode::from_u16(failure.code())
        && let Ok(response) = Media::Yaml.respond(code, failure.to_json().to_string().into())
    {
        return response;
    }
    failure.response()
}

/// What authentication warns about and no answer has said yet is left in `warnings`.
async fn answer(
    state: &Arc<State>,
    request: Request<Body>,
    warnings: &mut Vec<&'static str>,
) -> Result<Response<Body>> {
    let since = Instant::now();
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let route = route(parts.uri.path());
    let limit = match &route {
        Ok(route) => deadline::of(&parts.method, route, &query),
        Err(_) => Ok(None),
    };
    // Read before anything is refused: a client that still sends when the answer comes may miss it.
    let body = if is_read(&parts.method) {
        Ok(Bytes::new())
    } else {
        let patience = limit.as_ref().ok().copied().flatten();
        deadline::within(Some(patience.unwrap_or(deadline::LIMIT)), since, read_body(body)).await
    };
    let (route, limit) = (route?, limit?);
    // Those in this process wait for their own requests alone.
    let remote = matches!(parts.extensions.get::<Peer>(), Some(Peer::Certificates(_)));
    let sort = remote.then(|| Sort::of(&parts.method, &route, &query));
    let size = body.as_ref().map_or(0, Bytes::len);
    // In a box: it is large, and goes through hands.
    let work = Box::pin(deadline::within(
        limit,
        since,
        answer_in_time(state, parts, route, query, body, warnings),
    ));
    match sort {
        Some(sort) => state.slow.work(sort, size, work).await,
        None => work.await,
    }
}

async fn answer_in_time(
    state: &Arc<State>,
    mut parts: Parts,
    route: Route,
    query: Query,
    body: Result<Bytes>,
    warnings: &mut Vec<&'static str>,
) -> Result<Response<Body>> {
    let peer = parts.extensions.get::<Peer>();
    let user = auth::authenticate(state, &mut parts.headers, peer, warnings)?;
    match route {
        Route::Other(path) => {
            let verb = parts.method.as_str().to_lowercase();
            admit(
                state,
                user,
                &parts.headers,
                &Attributes::non_resource(&verb, &path),
            )?;
            api::paths::answer(state, &parts.method, &path, &query, &parts.headers)
        }
        Route::Resource(target) => {
            let verb = target.verb(&parts.method, &query);
            let single = single_name(&target, verb, &query);
            let mut attributes = target.attributes(verb);
            attributes.name = single.as_deref().unwrap_or(&target.name);
            let user = admit(state, user, &parts.headers, &Attributes::Resource(attributes))?;
            if target.astray {
                return Err(Failure::no_such_path());
            }
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
            let socket = if verb == "watch" {
                api::prepare_socket(&mut parts)
            } else {
                None
            };
            let mut call = Call::new(
                state.clone(),
                user,
                parts.method,
                target,
                query,
                parts.headers,
                resource,
            );
            call.socket = socket.into();
            warnings.drain(..).for_each(|warning| call.warn(warning));
            let mut response = match call.answer(verb, &body?).await {
                Ok(response) => response,
                Err(failure) => refuse(&failure, call.headers.get(header::ACCEPT)),
            };
            // What there are warnings about is said even when the answer is no.
            call.add_warnings(response.headers_mut());
            Ok(response)
        }
    }
}

/// The user to act as, if they may do this.
fn admit(state: &State, user: User, headers: &HeaderMap, attributes: &Attributes<'_>) -> Result<User> {
    let user = auth::impersonate(state, user, headers, attributes)?;
    if state.authorizer.allows(&user, attributes) {
        return Ok(user);
    }
    Err(forbidden(&user, attributes))
}

/// A 403 about a request.
pub(crate) fn forbidden(user: &User, attributes: &Attributes<'_>) -> Failure {
    match attributes {
        Attributes::Resource(resource) => Failure::forbidden(
            resource.group,
            resource.resource,
            resource.name,
            &refusal(user, resource),
        ),
        Attributes::NonResource { verb, path } => {
            let why = format!("User {:?} cannot {verb} path {path:?}", user.name);
            Failure::forbidden("", "", "", &why)
        }
    }
}

/// The words of a 403.
fn refusal(user: &User, attributes: &ResourceAttributes<'_>) -> String {
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

/// A list or watch of one named object may be allowed by a rule with resource names. A deletion of all that match may not, nor
/// what is asked in the old way.
fn single_name(target: &Target, verb: &str, query: &Query) -> Option<String> {
    if target.watch || !matches!(verb, "list" | "watch") {
        return None;
    }
    // Options that cannot be read say nothing, all together.
    query.number("limit").ok()?;
    query.number("timeoutSeconds").ok()?;
    LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).ok()?;
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    let name = selector.exact("metadata.name")?;
    crate::schema::names::path_segment(name)
        .is_empty()
        .then(|| name.to_owned())
}

/// Whether the method may be used on this path at all.
pub(crate) fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
