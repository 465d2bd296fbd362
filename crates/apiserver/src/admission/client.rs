//! The HTTPS client that reaches webhooks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request as HttpRequest, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Source;
use super::request::text;
use super::trust::Trust;

/// A webhook's answer may not be larger.
const MAX_REPLY: usize = 3 * 1024 * 1024;
/// Idle connections kept in all.
const KEPT: usize = 32;

/// Where a webhook lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// What is dialled.
    address: String,
    /// What the certificate must say.
    host: String,
    /// The URL as messages show it.
    url: String,
    path: String,
    authority: Vec<u8>,
}

impl Target {
    /// Reads `clientConfig`: a URL, or a service whose endpoints the store knows.
    pub(super) fn read(config: &Value, source: &dyn Source) -> Result<Self, String> {
        let bundle = text(config, "/caBundle");
        let authority = STANDARD
            .decode(bundle)
            .map_err(|e| format!("could not get REST client: caBundle: {e}"))?;
        let url = text(config, "/url");
        if !url.is_empty() {
            let uri: Uri = url
                .parse()
                .map_err(|e| format!("could not get REST client: {e}"))?;
            let host = uri
                .host()
                .ok_or("could not get REST client: the url has no host")?;
            let port = uri.port_u16().unwrap_or(443);
            return Ok(Self {
                address: format!("{host}:{port}"),
                host: host.trim_matches(['[', ']']).to_owned(),
                url: url.to_owned(),
                path: uri
                    .path_and_query()
                    .map_or_else(|| "/".into(), ToString::to_string),
                authority,
            });
        }
        let Some(service) = config.get("service").filter(|s| s.is_object()) else {
            return Err(
                "could not get REST client: webhook configuration must have either service or URL".into(),
            );
        };
        let (namespace, name) = (text(service, "/namespace"), text(service, "/name"));
        let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
        let path = text(service, "/path");
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        let host = format!("{name}.{namespace}.svc");
        Ok(Self {
            address: endpoint(source, namespace, name, port)?,
            url: format!("https://{host}:{port}{path}"),
            host,
            path,
            authority,
        })
    }
}

/// An address behind a service: there is no service network, so endpoints are dialled directly.
fn endpoint(source: &dyn Source, namespace: &str, name: &str, port: u64) -> Result<String, String> {
    let not_found = || {
        format!(
            "failed to call webhook: service {} not found",
            crate::schema::quote(name)
        )
    };
    let service = source
        .get("", "services", namespace, name)
        .ok_or_else(not_found)?;
    let ports = service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let wanted = ports
        .iter()
        .find(|p| p.get("port").and_then(Value::as_u64) == Some(port));
    let target = wanted
        .and_then(|p| p.get("targetPort"))
        .and_then(Value::as_u64)
        .unwrap_or(port);
    if text(&service, "/spec/type") == "ExternalName" {
        return Ok(format!("{}:{target}", text(&service, "/spec/externalName")));
    }
    let port_of = |ports: Option<&Value>| {
        let ports = ports.and_then(Value::as_array).cloned().unwrap_or_default();
        let named = ports.iter().filter_map(|p| p.get("port").and_then(Value::as_u64));
        let all: Vec<u64> = named.collect();
        if all.contains(&target) {
            target
        } else {
            all.first().copied().unwrap_or(target)
        }
    };
    if let Some(endpoints) = source.get("", "endpoints", namespace, name) {
        for subset in endpoints
            .get("subsets")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let ip = text(subset, "/addresses/0/ip");
            if !ip.is_empty() {
                return Ok(format!("{ip}:{}", port_of(subset.get("ports"))));
            }
        }
    }
    for slice in source.list("discovery.k8s.io", "endpointslices") {
        let ours = text(&slice, "/metadata/namespace") == namespace
            && slice
                .pointer("/metadata/labels")
                .and_then(|l| l.get("kubernetes.io/service-name"))
                .and_then(Value::as_str)
                == Some(name);
        let address = text(&slice, "/endpoints/0/addresses/0");
        if ours && !address.is_empty() {
            return Ok(format!("{address}:{}", port_of(slice.get("ports"))));
        }
    }
    Err(format!(
        "failed to call webhook: no endpoints available for service {}",
        crate::schema::quote(name)
    ))
}

type Connection = SendRequest<Full<Bytes>>;

/// Calls webhooks; connections are kept for the next call.
#[derive(Default)]
pub(super) struct Client {
    idle: Mutex<Vec<(Target, Connection)>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Sends a review and reads the answer.
    pub(super) async fn post(
        &self,
        target: &Target,
        review: &Value,
        timeout: Duration,
    ) -> Result<Value, String> {
        let separator = if target.url.contains('?') { '&' } else { '?' };
        let shown = format!("Post \"{}{separator}timeout={}s\"", target.url, timeout.as_secs());
        match tokio::time::timeout(timeout, self.exchange(target, review, timeout)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => Err(format!("{shown}: {why}")),
            Err(_) => Err(format!("{shown}: context deadline exceeded")),
        }
    }

    /// The outer error is that there is no answer.
    async fn exchange(
        &self,
        target: &Target,
        review: &Value,
        timeout: Duration,
    ) -> Result<Result<Value, String>, String> {
        let body = Bytes::from(review.to_string());
        let kept = self.take(target);
        let reused = kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => connect(target).await?,
        };
        match self.send(target, connection, body.clone(), timeout).await {
            // A kept connection may have died meanwhile; a fresh one decides.
            Err(_) if reused => {
                let connection = connect(target).await?;
                self.send(target, connection, body, timeout).await
            }
            outcome => outcome,
        }
    }

    fn take(&self, target: &Target) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, connection)| !connection.is_closed());
        let i = idle
            .iter()
            .position(|(t, connection)| t == target && connection.is_ready())?;
        Some(idle.swap_remove(i).1)
    }

    async fn send(
        &self,
        target: &Target,
        mut connection: Connection,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Result<Value, String>, String> {
        let separator = if target.path.contains('?') { '&' } else { '?' };
        let request = HttpRequest::builder()
            .method(Method::POST)
            .uri(format!(
                "{}{separator}timeout={}s",
                target.path,
                timeout.as_secs()
            ))
            .header(header::HOST, &target.host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|e| e.to_string())?;
        let response = connection
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        let status = response.status();
        let bytes = Limited::new(response.into_body(), MAX_REPLY)
            .collect()
            .await
            .map_err(|e| e.to_string())?
            .to_bytes();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push((target.clone(), connection));
        }
        drop(idle);
        if !status.is_success() {
            return Ok(Err(format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                String::from_utf8_lossy(&bytes)
            )));
        }
        Ok(serde_json::from_slice(&bytes).map_err(|e| format!("couldn't decode the answer: {e}")))
    }
}

async fn connect(target: &Target) -> Result<Connection, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let trust = Arc::new(Trust::read(&target.authority, provider.clone())?);
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(trust)
        .with_no_client_auth();
    let name = ServerName::try_from(target.host.clone()).map_err(|e| e.to_string())?;
    let stream = TcpStream::connect(&target.address)
        .await
        .map_err(|e| format!("dial tcp {}: {e}", target.address))?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|e| format!("tls: failed to verify certificate: {e}"))?;
    let (connection, driver) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "webhook connection ended");
        }
    });
    Ok(connection)
}
