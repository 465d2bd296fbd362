//! Paths that are no resources: health, version, metrics, discovery, documents.

use std::sync::atomic::Ordering;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use super::{discovery, health};
use crate::auth::ISSUER;
use crate::http::{Body, Query, acceptable, json as respond, text};
use crate::openapi;
use crate::state::State;
use crate::status::{Failure, Result};

/// The Kubernetes whose behaviour is reproduced.
pub(crate) const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.3");

pub(crate) fn answer(
    state: &State,
    method: &Method,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let kind = Kind::of(&parts);
    let slash = path.len() > 1 && path.ends_with('/');
    if path.starts_with("//") || (slash && kind == Kind::Plain) || path == "/apis//" {
        return Err(Failure::no_such_path());
    }
    let found = find(state, &parts, query, headers)?;
    if *method != Method::GET && matches!(kind, Kind::Document | Kind::Versioned) {
        return Err(Failure::no_such_method());
    }
    if matches!(kind, Kind::Versioned | Kind::Grouped) {
        acceptable(headers, parts.as_slice() == ["version"])?;
    }
    Ok(found)
}

/// How a path is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By any method, spelled exactly so.
    Plain,
    /// By GET alone; a slash at the end does not count, as for all that follow.
    Document,
    /// By GET alone, in a form that the client can read.
    Versioned,
    /// By any method, in a form that the client can read.
    Grouped,
}

impl Kind {
    fn of(parts: &[&str]) -> Self {
        match parts {
            ["version" | "api", ..] | ["apis", _, _, ..] => Self::Versioned,
            ["apis", ..] => Self::Grouped,
            ["openid", "v1", "jwks", ..] | [".well-known", "openid-configuration", ..] => Self::Document,
            _ => Self::Plain,
        }
    }
}

fn find(state: &State, parts: &[&str], query: &Query, headers: &HeaderMap) -> Result<Response<Body>> {
    let ok = StatusCode::OK;
    match parts {
        [] => Ok(respond(ok, &json!({ "paths": index(state) }))),
        ["api" | "apis", ..] => discovery::answer(&state.registry.snapshot(), parts, headers),
        ["version"] => Ok(respond(ok, &version())),
        [endpoint @ ("livez" | "readyz" | "healthz"), check @ ..] if check.len() < 2 => {
            health::answer(state, endpoint, check.first().copied(), query)
        }
        ["metrics"] => Ok(text(ok, metrics(state))),
        ["openapi", "v3"] => Ok(openapi::index(state)),
        ["openapi", "v3", rest @ ..] => openapi::v3(state, rest, query, headers),
        ["openapi", "v2"] => Ok(openapi::v2(state, headers)),
        ["openid", "v1", "jwks"] => {
            let keys = json!({ "keys": [state.issuer.jwk] });
            Ok(openid("application/jwk-set+json", &keys))
        }
        [".well-known", "openid-configuration"] => {
            let server = state.url().unwrap_or_else(|| ISSUER.to_owned());
            let about = json!({
                "issuer": ISSUER,
                "jwks_uri": format!("{server}/openid/v1/jwks"),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            });
            Ok(openid("application/json", &about))
        }
        ["version", ..] | ["openid", "v1", "jwks", ..] | [".well-known", "openid-configuration", ..] => {
            Err(Failure::no_such_resource())
        }
        _ => Err(Failure::no_such_path()),
    }
}

/// A document for those who check our tokens, who may keep it for a while.
fn openid(form: &'static str, value: &Value) -> Response<Body> {
    let mut response = respond(StatusCode::OK, value);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=3600"),
    );
    response
}

fn index(state: &State) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in state.registry.snapshot().groups() {
        if group.is_empty() {
            continue;
        }
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    for path in [
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ] {
        paths.push(path.into());
    }
    paths
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    // As Go calls them.
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": "35",
        "gitVersion": format!("{git}+writ"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{machine}", std::env::consts::OS),
    })
}

/// A few numbers in the text format of Prometheus.
fn metrics(state: &State) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let mut one = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = write!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        );
    };
    one(
        "apiserver_requests_total",
        "counter",
        "Requests answered.",
        state.requests.load(Ordering::Relaxed),
    );
    one(
        "apiserver_watches",
        "gauge",
        "Watches that are open.",
        state.watches.load(Ordering::Relaxed),
    );
    one(
        "apiserver_resource_version",
        "gauge",
        "The newest resourceVersion.",
        state.store.rv(),
    );
    let help = "Objects stored, by resource.";
    let _ = write!(
        out,
        "# HELP apiserver_storage_objects {help}\n# TYPE apiserver_storage_objects gauge\n"
    );
    for resource in state
        .registry
        .snapshot()
        .all()
        .filter(|resource| resource.allows("get") && !resource.is_second())
    {
        let name = crate::status::qualified(&resource.group, &resource.plural);
        let _ = writeln!(
            out,
            "apiserver_storage_objects{{resource=\"{name}\"}} {}",
            state.store.count(&resource.table)
        );
    }
    out
}
