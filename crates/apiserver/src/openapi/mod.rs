//! OpenAPI documents: version 3 per group and version, version 2 for everything at once, that also in protobuf.
//!
//! Built when somebody asks, from the compiled-in definitions and the stored CustomResourceDefinitions; nothing of it is kept.

mod paths;
mod proto;
mod schemas;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use sha2::Digest;

use crate::api::paths::VERSION;
use crate::http::{Body, json as respond};
use crate::registry::{Resource, Snapshot};
use crate::state::State;
use crate::status::{Failure, Result};

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
        let mut digest = sha2::Sha256::new();
        digest.update(VERSION.2);
        for resource in snapshot
            .group(&group)
            .filter(|resource| resource.builtin.is_none())
        {
            let crd = state
                .store
                .get("customresourcedefinitions.apiextensions.k8s.io", &resource.table);
            digest.update(crd.map(|crd| crd.rv).unwrap_or_default().to_be_bytes());
        }
        let hash = format!("{:X}", digest.finalize());
        for version in versions {
            let path = path_of(&group, &version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    respond(StatusCode::OK, &json!({ "paths": paths }))
}

/// `/openapi/v3/apis/GROUP/VERSION`.
pub(crate) fn v3(state: &State, parts: &[&str]) -> Result<Response<Body>> {
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
    let mut schemas = Map::new();
    let mut all = Map::new();
    for resource in resources {
        schemas::add(state, Flavor::V3, resource, version, &mut schemas);
        paths::add(Flavor::V3, resource, version, &mut all);
    }
    let document = json!({
        "openapi": "3.0.0", "info": info(), "paths": all, "components": { "schemas": schemas },
    });
    Ok(respond(StatusCode::OK, &document))
}

/// `/openapi/v2`, as JSON or as protobuf.
pub(crate) fn v2(state: &State, headers: &HeaderMap) -> Response<Body> {
    let document = swagger(state, &state.registry.snapshot());
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let first = accept.split(',').next().unwrap_or_default();
    if !first.contains("com.github.proto-openapi.spec.v2") {
        return respond(StatusCode::OK, &document);
    }
    let mut response = Response::new(Body::from(proto::encode(&document)));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
    );
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
