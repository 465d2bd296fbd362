//! A repository behind HTTPS, with a certificate authority and a token from Secrets.
//!
//! The server is `git upload-pack` behind a few lines of HTTP, so that what is tested is the real protocol.

use std::{process::Stdio, sync::Arc};

use anyhow::{Context, Result, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::Engine as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpListener, process::Command};
use tokio_rustls::TlsAcceptor;

use crate::env::{Case, SYSTEM, apply, config_map, namespace, until};

#[derive(Clone)]
struct Server {
    path: Arc<str>,
}

fn allowed(headers: &HeaderMap) -> bool {
    let wanted = format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode("reader:s3cret")
    );
    headers
        .get(header::AUTHORIZATION)
        .is_some_and(|value| value == wanted.as_str())
}

async fn upload_pack(server: &Server, headers: &HeaderMap, advertise: bool, input: &[u8]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.args(["upload-pack", "--stateless-rpc"]);
    if advertise {
        command.arg("--advertise-refs");
    }
    if let Some(version) = headers.get("git-protocol") {
        command.env("GIT_PROTOCOL", version.to_str()?);
    }
    command
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*");
    let mut child = command
        .arg(&*server.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start git")?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let input = input.to_vec();
    let write = tokio::spawn(async move { stdin.write_all(&input).await });
    let output = child.wait_with_output().await?;
    let _ = write.await?;
    Ok(output.stdout)
}

async fn refs(State(server): State<Server>, request: Request) -> Response {
    if !allowed(request.headers()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let answer = upload_pack(&server, request.headers(), true, &[])
        .await
        .unwrap_or_default();
    let body = [b"001e# service=git-upload-pack\n0000".as_slice(), &answer].concat();
    (
        [(
            header::CONTENT_TYPE,
            "application/x-git-upload-pack-advertisement",
        )],
        body,
    )
        .into_response()
}

async fn pack(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    if !allowed(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let answer = upload_pack(&server, &headers, false, &body)
        .await
        .unwrap_or_default();
    (
        [(header::CONTENT_TYPE, "application/x-git-upload-pack-result")],
        answer,
    )
        .into_response()
}

/// Serves a repository; returns its address and the certificate authority.
async fn serve(path: &str) -> Result<(String, String)> {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let pem = key.cert.pem();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![key.cert.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der())
                    .map_err(anyhow::Error::msg)?,
            )?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let router = Router::new()
        .route("/repo/info/refs", get(refs))
        .route("/repo/git-upload-pack", post(pack))
        .with_state(Server { path: path.into() });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let service = hyper_util::service::TowerToHyperService::new(router);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(hyper_util::rt::TokioIo::new(stream), service)
                        .await;
                }
            });
        }
    });
    Ok((format!("https://localhost:{port}/repo"), pem))
}

pub async fn token_and_ca() -> Result<()> {
    let case = Case::new()?;
    apply(&case.admin, &namespace("https")).await?;
    let (url, ca) = serve(&case.repo.path().display().to_string()).await?;
    let one = case
        .repo
        .commit("main", &[("a.yaml", config_map("https", "a", "1"))])?;
    case.root_sync("https", json!({ "spec": { "git": {
        "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "caCertSecretRef": { "name": "git-ca" },
    }}}))
    .await?;
    let error = |text: &'static str| {
        let case = &case;
        async move {
            case.when("https", text, |status| {
                status["source"]["errors"][0]["errorMessage"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(text)
            })
            .await
        }
    };
    error("git-token").await?;
    let secret = |name: &str, data: serde_json::Value| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": SYSTEM }, "stringData": data }).to_string()
    };
    apply(
        &case.admin,
        &secret("git-token", json!({ "username": "reader", "token": "wrong" })),
    )
    .await?;
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?
        .cert
        .pem();
    apply(&case.admin, &secret("git-ca", json!({ "cert": other }))).await?;
    error("certificate").await?;
    apply(&case.admin, &secret("git-ca", json!({ "cert": ca }))).await?;
    let status = error("401").await?;
    ensure!(
        !status.to_string().contains("wrong"),
        "the token is in the status"
    );
    apply(
        &case.admin,
        &secret("git-token", json!({ "username": "reader", "token": "s3cret" })),
    )
    .await?;
    case.synced("https", &one).await?;
    // By force, twice: the clone follows.
    for value in ["2", "3"] {
        let next = case
            .repo
            .commit("main", &[("a.yaml", config_map("https", "a", value))])?;
        case.synced("https", &next).await?;
    }
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "https");
    until("the last value", || async {
        Ok((maps.get("a").await?.data.unwrap_or_default()["key"] == "3").then_some(()))
    })
    .await?;
    // A tag, and a commit that no branch names any more but that was fetched.
    case.repo.tag("v1", &one)?;
    case.root_sync("https", json!({ "spec": { "git": {
        "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "caCertSecretRef": { "name": "git-ca" }, "revision": "v1",
    }}}))
    .await?;
    case.synced("https", &one).await?;
    case.repo.remove_branch("main")?;
    case.root_sync("https", json!({ "spec": { "git": {
        "repo": url, "auth": "token", "secretRef": { "name": "git-token" }, "caCertSecretRef": { "name": "git-ca" },
    }}}))
    .await?;
    error("no branch \"main\"").await?;
    Ok(())
}
