//! OpenAPI documents: version 3 per group and version, version 2 for everything at once, that also in protobuf.
//!
//! Built when somebody asks, from the compiled-in definitions and the stored CustomResourceDefinitions; nothing of it is kept.

mod paths;
mod proto;
mod schemas;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use sha2::Digest;

use crate::api::paths::VERSION;
use crate::http::{Body, Query, accepted, kept, text};
use crate::registry::{Resource, Snapshot};
use crate::state::State;
use crate::status::{Failure, Result};

const JSON: &str = "application/json";

/// Which of the two a document is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavor {
    V2,
    V3,
}

impl Flavor {
    fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

fn info() -> Value {
    json!({ "title": "Kubernetes", "version": VERSION.2 })
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// `/openapi/v3`: where the documents are. The hash changes when a document does.
pub(crate) fn index(state: &State) -> Response<Body> {
    let snapshot = state.registry.snapshot();
    let mut paths = Map::new();
    for (group, versions) in snapshot.groups() {
        let hash = hash(state, &snapshot, &group);
        for version in versions {
            let path = path_of(&group, &version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    // That is what the real server takes it for.
    text(StatusCode::OK, json!({ "paths": paths }).to_string())
}

/// What the documents of a group depend on. Clients keep them by it for a year, so it is one that no other server comes to, even
/// if the same things happened to it in the same order.
fn hash(state: &State, snapshot: &Snapshot, group: &str) -> String {
    let mut digest = sha2::Sha256::new();
    digest.update(VERSION.2);
    digest.update(env!("CARGO_PKG_VERSION"));
    let custom = |resource: &&Arc<Resource>| resource.builtin.is_none();
    for resource in snapshot.group(group).filter(custom) {
        let crd = state
            .store
            .get("customresourcedefinitions.apiextensions.k8s.io", &resource.table);
        digest.update(crd.map(|crd| crd.json()).unwrap_or_default());
    }
    format!("{:X}", digest.finalize())
}

/// `/openapi/v3/apis/GROUP/VERSION`.
pub(crate) fn v3(
    state: &State,
    parts: &[&str],
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let (group, version) = match parts {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Err(Failure::no_such_path()),
    };
    let snapshot = state.registry.snapshot();
    let resources: Vec<&Resource> = snapshot
        .group(group)
        .map(AsRef::as_ref)
        .filter(|resource| resource.version(version).is_some())
        .collect();
    if resources.is_empty() {
        return Err(Failure::no_such_path());
    }
    if !reads(headers, &[JSON]) {
        return Ok(unreadable());
    }
    let hash = hash(state, &snapshot, group);
    let asked = query.get("hash").filter(|hash| !hash.is_empty());
    if asked.is_some_and(|asked| asked != hash) {
        return Ok(moved(&path_of(group, version), &hash));
    }
    let mut schemas = Map::new();
    let mut all = Map::new();
    for resource in resources {
        schemas::add(state, Flavor::V3, resource, version, &mut schemas);
        paths::add(Flavor::V3, resource, version, &mut all);
    }
    let document = json!({
        "openapi": "3.0.0", "info": info(), "paths": all, "components": { "schemas": schemas },
    });
    let bytes = Bytes::from(document.to_string());
    let tag = kept::tag(&bytes);
    let mut response = kept::document((!kept::has(headers, &tag)).then(|| Body::from(bytes)), JSON, &tag);
    if asked.is_some() {
        // Whatever changes has another hash.
        let kept = HeaderValue::from_static("public, immutable");
        response.headers_mut().insert(header::CACHE_CONTROL, kept);
        let now = state.clock.now();
        let end = now
            .saturating_add(SignedDuration::from_hours(24 * 365))
            .unwrap_or(now);
        if let Ok(end) = HeaderValue::from_str(&end.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()) {
            response.headers_mut().insert(header::EXPIRES, end);
        }
    }
    Ok(response)
}

/// Whether a client can read one of these forms.
fn reads(headers: &HeaderMap, forms: &[&str]) -> bool {
    let mut accepted = accepted(headers).peekable();
    accepted.peek().is_none()
        || accepted.any(|form| matches!(form, "*/*" | "application/*") || forms.contains(&form))
}

fn unreadable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Where the document is that took the place of another one.
fn moved(path: &str, hash: &str) -> Response<Body> {
    let url = format!("/openapi/v3/{path}?hash={hash}");
    let mut response = Response::new(Body::from(format!(
        "<a href=\"{url}\">Moved Permanently</a>.\n\n"
    )));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(url) = HeaderValue::from_str(&url) {
        headers.insert(header::LOCATION, url);
    }
    response
}

/// `/openapi/v2`, as JSON or as protobuf.
pub(crate) fn v2(state: &State, headers: &HeaderMap) -> Response<Body> {
    let document = swagger(state, &state.registry.snapshot());
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let first = accept.split(',').next().unwrap_or_default();
    let (bytes, form) = if first.contains("com.github.proto-openapi.spec.v2") {
        let form = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        (Bytes::from(proto::encode(&document)), form)
    } else if accept.contains("com.github.proto-openapi.spec.v2") || reads(headers, &[JSON]) {
        (Bytes::from(document.to_string()), JSON)
    } else {
        return unreadable();
    };
    let tag = kept::tag(&bytes);
    let mut response = kept::document((!kept::has(headers, &tag)).then(|| Body::from(bytes)), form, &tag);
    // Compressed by itself, as there, for whom it is large enough.
    let vary = HeaderValue::from_static("Accept-Encoding,Accept");
    response.headers_mut().insert(header::VARY, vary);
    response
}

fn swagger(state: &State, snapshot: &Snapshot) -> Value {
    let mut definitions = Map::new();
    let mut all = Map::new();
    for resource in snapshot.all() {
        for version in resource.versions.iter().filter(|version| version.served) {
            schemas::add(state, Flavor::V2, resource, &version.name, &mut definitions);
            paths::add(Flavor::V2, resource, &version.name, &mut all);
        }
    }
    json!({ "swagger": "2.0", "info": info(), "paths": all, "definitions": definitions })
}
