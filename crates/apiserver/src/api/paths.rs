//! Paths that are no resources: health, version, metrics, discovery, documents.

use std::sync::atomic::Ordering;

use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::json;

use super::discovery;
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
    if path.starts_with("//") {
        return Err(Failure::no_such_path());
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // Most of these paths do not look at the method; some take GET alone.
    let strict = matches!(parts.as_slice(), ["version"] | ["api", ..] | ["apis", _, _, ..]);
    if strict && *method != Method::GET {
        return Err(Failure::no_such_method());
    }
    if strict || parts.first() == Some(&"apis") {
        acceptable(headers, parts.as_slice() == ["version"])?;
    }
    let ok = StatusCode::OK;
    match parts.as_slice() {
        [] => Ok(respond(ok, &json!({ "paths": index(state) }))),
        ["api" | "apis", ..] => discovery::answer(&state.registry.snapshot(), &parts, headers),
        ["version"] => Ok(respond(ok, &version())),
        ["livez" | "readyz" | "healthz"] if query.has("verbose") => {
            let name = parts.first().copied().unwrap_or_default();
            Ok(text(
                ok,
                format!("[+]ping ok\n[+]store ok\n{name} check passed\n"),
            ))
        }
        ["livez" | "readyz" | "healthz"] | ["livez" | "readyz" | "healthz", "ping" | "store"] => {
            Ok(text(ok, "ok"))
        }
        ["metrics"] => Ok(text(ok, metrics(state))),
        ["openapi", "v3"] => Ok(openapi::index(state)),
        ["openapi", "v3", rest @ ..] => openapi::v3(state, rest),
        ["openapi", "v2"] => Ok(openapi::v2(state, headers)),
        ["openid", "v1", "jwks"] => Ok(respond(ok, &json!({ "keys": [state.issuer.jwk] }))),
        [".well-known", "openid-configuration"] => Ok(respond(
            ok,
            &json!({
                "issuer": ISSUER,
                "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }),
        )),
        _ => Err(Failure::no_such_path()),
    }
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

fn version() -> serde_json::Value {
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
