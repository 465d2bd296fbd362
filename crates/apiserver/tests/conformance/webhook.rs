//! A webhook that both servers call. What it answers is in the path; what it was asked is kept, and compared too.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What each server asked, in order: the path and the review.
type Calls = Arc<Mutex<HashMap<String, Vec<(String, Value)>>>>;

/// One door of it.
pub struct Door {
    address: SocketAddr,
    /// The authority that its certificate is to be checked with, in base64.
    pub ca: String,
}

/// The running webhook.
pub struct Webhook {
    pub usual: Door,
    /// With a certificate that is its own authority, as `openssl req -x509` makes it.
    pub own_authority: Door,
    /// The same for another host.
    pub other_host: Door,
    /// Where it speaks without TLS: a redirect may lead there.
    pub plain: SocketAddr,
    calls: Calls,
}

impl Webhook {
    pub async fn start() -> Result<Self> {
        let calls = Calls::default();
        let own = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Ok(Self {
            usual: Door::open("127.0.0.1", rcgen::IsCa::NoCa, &calls).await?,
            own_authority: Door::open("127.0.0.1", own, &calls).await?,
            other_host: Door::open("elsewhere.example.com", own, &calls).await?,
            plain: listen(None, &calls).await?,
            calls,
        })
    }

    /// What a server asked since the last time. Validating webhooks are asked at the same time, in any order.
    pub fn take(&self, side: &str) -> Vec<(String, Value)> {
        let mut calls = self.calls.lock().unwrap().remove(side).unwrap_or_default();
        calls.sort_by_key(|(path, _)| path.strip_prefix("v-").unwrap_or_default().to_owned());
        calls
    }
}

impl Door {
    async fn open(host: &str, is_ca: rcgen::IsCa, calls: &Calls) -> Result<Self> {
        let signing_key = rcgen::KeyPair::generate()?;
        let mut parameters = rcgen::CertificateParams::new([host.to_owned()])?;
        parameters.is_ca = is_ca;
        let cert = parameters.self_signed(&signing_key)?;
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der())
            .map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self {
            address: listen(Some(acceptor), calls).await?,
            ca: STANDARD.encode(cert.pem()),
        })
    }

    /// Where a server finds it.
    pub fn url(&self, side: &str) -> String {
        format!("https://{}/{side}", self.address)
    }
}

async fn listen(acceptor: Option<TlsAcceptor>, calls: &Calls) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, acceptor, calls.clone()));
    Ok(address)
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, calls: Calls) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let (acceptor, calls) = (acceptor.clone(), calls.clone());
        tokio::spawn(async move {
            let Some(acceptor) = acceptor else {
                return converse(stream, calls).await;
            };
            if let Ok(stream) = acceptor.accept(stream).await {
                converse(stream, calls).await;
            }
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, calls: Calls) {
    let service = hyper::service::service_fn(move |request| respond(request, calls.clone()));
    drop(
        hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

async fn respond(request: Request<Incoming>, calls: Calls) -> Result<Response<Full<Bytes>>> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let (side, how) = path.split_once('/').context("the path names side and answer")?;
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    // A redirect may have taken the review away.
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut asked = review.get("request").cloned().unwrap_or_else(|| json!({}));
    let told = how.trim_start_matches(['m', 'v', '-']).starts_with("told");
    if told {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        asked["method"] = parts.method.as_str().into();
        asked["query"] = parts.uri.query().into();
        asked["review"] = review["apiVersion"].clone();
        asked["headers"] = ["host", "accept", "accept-encoding", "content-type", "user-agent"]
            .map(header)
            .into_iter()
            .collect();
    }
    let earlier = {
        let mut calls = calls.lock().unwrap();
        let calls = calls.entry(side.to_owned()).or_default();
        calls.push((how.to_owned(), asked.clone()));
        calls.len() - 1
    };
    if told {
        return super::told::answer(&review, parts.uri.path(), earlier);
    }
    let plain = |code: u16, text: &str| {
        Ok(Response::builder()
            .status(code)
            .body(Full::from(text.to_owned()))?)
    };
    let mut answer = json!({"uid": asked["uid"], "allowed": true});
    let encoded = |operations: Value| STANDARD.encode(operations.to_string());
    match how.trim_start_matches("v-").trim_start_matches("m-") {
        "deny" => answer = json!({"uid": asked["uid"], "allowed": false, "status": {"message": "not today"}}),
        "deny-silently" => answer["allowed"] = false.into(),
        "deny-with-reason" => {
            answer["allowed"] = false.into();
            answer["status"] = json!({"reason": "Because"});
        }
        "deny-with-code" => {
            answer["allowed"] = false.into();
            answer["status"] = json!({"code": 409, "reason": "Conflict", "message": "taken", "details": {"causes": [{"reason": "Taken", "message": "m", "field": "data.name"}]}});
        }
        "deny-with-good-code" => {
            answer["allowed"] = false.into();
            answer["status"] = json!({"code": 200, "message": "fine"});
        }
        "warn" => answer["warnings"] = json!(["careful", "a \"quoted\" one", "second\nline"]),
        "warn-and-deny" => {
            answer["allowed"] = false.into();
            answer["warnings"] = json!(["careful"]);
        }
        "label" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                encoded(json!([{"op": "add", "path": "/metadata/labels/hooked", "value": "yes"}])).into();
        }
        "count" => {
            let count = asked["object"]["data"]["count"]
                .as_str()
                .unwrap_or_default()
                .len()
                + 1;
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                encoded(json!([{"op": "add", "path": "/data/count", "value": "x".repeat(count)}])).into();
        }
        "count-once" if asked["object"]["data"]["once"].is_null() => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([{"op": "add", "path": "/data/once", "value": "yes"}])).into();
        }
        "status" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                encoded(json!([{"op": "add", "path": "/status", "value": {"replicas": 9}}])).into();
        }
        "spec" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                encoded(json!([{"op": "add", "path": "/spec/text", "value": "by the hook"}])).into();
        }
        "replicas" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([{"op": "add", "path": "/spec/replicas", "value": 7}])).into();
        }
        "user" if asked["object"]["spec"]["user"].is_string() => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([
                {"op": "replace", "path": "/spec/user", "value": "nobody"},
                {"op": "add", "path": "/spec/groups", "value": ["none"]},
            ]))
            .into();
        }
        // The object brings the patch along.
        "patch" => {
            let brought = asked["object"]["metadata"]["annotations"]["patch"].as_str();
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = STANDARD.encode(brought.unwrap_or("[]")).into();
        }
        "token" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                encoded(json!([{"op": "add", "path": "/spec/audiences", "value": ["elsewhere"]}])).into();
        }
        "allow" | "count-once" | "user" => {}
        "rename" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] =
                encoded(json!([{"op": "replace", "path": "/metadata/name", "value": "renamed"}])).into();
        }
        "spoil" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([{"op": "add", "path": "/data/bad key", "value": "x"}])).into();
        }
        "unknown-field" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([{"op": "add", "path": "/nothing", "value": "x"}])).into();
        }
        "bad-patch" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([{"op": "remove", "path": "/data/nothing/here"}])).into();
        }
        "empty-patch" => {
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = encoded(json!([])).into();
        }
        "other-patch" => {
            answer["patchType"] = "MergePatch".into();
            answer["patch"] = encoded(json!({})).into();
        }
        "untyped-patch" => answer["patch"] = encoded(json!([])).into(),
        "other-uid" => answer["uid"] = "somebody".into(),
        "other-version" => {
            return Ok(Response::new(Full::from(
                json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": answer})
                    .to_string(),
            )));
        }
        "nothing" => {
            return Ok(Response::new(Full::from(
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
            )));
        }
        "slow" => {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        "text" => return plain(200, "hello"),
        "error" => return plain(500, "broken"),
        "teapot" => return plain(418, "short and stout"),
        other => return plain(404, other),
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer});
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(Full::from(review.to_string()))?)
}
