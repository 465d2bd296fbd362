//! Serves repositories over HTTP: `git upload-pack` behind a few lines of HTTP, so that tests speak the real protocol.
//! Needs the program `git`.

use std::{path::PathBuf, process::Stdio, sync::Arc};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::Engine as _;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    process::Command,
};
use tokio_rustls::TlsAcceptor;

/// The scheme and the credentials of a server.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// With TLS and a self-signed certificate for `localhost`.
    pub tls: bool,
    /// The required `username:token`; without it no credentials are needed.
    pub credentials: Option<String>,
}

/// A server of every repository below a folder; it ends with the runtime.
#[derive(Clone, Debug)]
pub struct Served {
    /// The address; a repository's path below the folder comes after it.
    pub url: String,
    /// The authority to trust, in PEM.
    pub ca: Option<String>,
}

#[derive(Clone)]
struct Server {
    folder: Arc<PathBuf>,
    authorization: Option<Arc<str>>,
}

/// Serves the repositories below a folder.
pub async fn serve(folder: PathBuf, access: Access) -> Result<Served> {
    let authorization = access.credentials.map(|credentials| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(credentials);
        format!("Basic {encoded}").into()
    });
    let router = Router::new()
        .route("/{name}/info/refs", get(refs))
        .route("/{name}/git-upload-pack", post(pack))
        .with_state(Server {
            folder: Arc::new(folder),
            authorization,
        });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let (acceptor, ca) = if access.tls {
        let (acceptor, ca) = acceptor()?;
        (Some(acceptor), Some(ca))
    } else {
        (None, None)
    };
    let scheme = if access.tls { "https" } else { "http" };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                match acceptor {
                    None => answer(stream, router).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            answer(stream, router).await;
                        }
                    }
                }
            });
        }
    });
    Ok(Served {
        url: format!("{scheme}://localhost:{port}"),
        ca,
    })
}

fn acceptor() -> Result<(TlsAcceptor, String)> {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![key.cert.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der())
                .map_err(anyhow::Error::msg)?,
        )?;
    Ok((TlsAcceptor::from(Arc::new(config)), key.cert.pem()))
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, router: Router) {
    let service = hyper_util::service::TowerToHyperService::new(router);
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(hyper_util::rt::TokioIo::new(stream), service)
        .await;
}

impl Server {
    fn allows(&self, headers: &HeaderMap) -> bool {
        self.authorization.as_deref().is_none_or(|wanted| {
            headers
                .get(header::AUTHORIZATION)
                .is_some_and(|value| value == wanted)
        })
    }

    async fn upload_pack(
        &self,
        name: &str,
        headers: &HeaderMap,
        advertise: bool,
        input: Bytes,
    ) -> Result<Vec<u8>> {
        let mut command = Command::new("git");
        command.args(["upload-pack", "--stateless-rpc"]);
        if advertise {
            command.arg("--advertise-refs");
        }
        if let Some(version) = headers.get("git-protocol") {
            command.env("GIT_PROTOCOL", version.to_str()?);
        }
        // The folders belong to the user who runs the tests.
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "safe.directory")
            .env("GIT_CONFIG_VALUE_0", "*");
        let mut child = command
            .arg(self.folder.join(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start git")?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let write = tokio::spawn(async move { stdin.write_all(&input).await });
        let output = child.wait_with_output().await?;
        let _ = write.await?;
        Ok(output.stdout)
    }
}

async fn refs(State(server): State<Server>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if !server.allows(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(answer) = server.upload_pack(&name, &headers, true, Bytes::new()).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let body = [b"001e# service=git-upload-pack\n0000".as_slice(), &answer].concat();
    let kind = "application/x-git-upload-pack-advertisement";
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

async fn pack(
    State(server): State<Server>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !server.allows(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(answer) = server.upload_pack(&name, &headers, false, body).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let kind = "application/x-git-upload-pack-result";
    ([(header::CONTENT_TYPE, kind)], answer).into_response()
}
