//! A client that costs little, so that what is measured is the server: one HTTP/1.1 connection, bytes in, bytes out.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a server is, and how to reach it as its administrator.
#[derive(Clone)]
pub struct Target {
    tls: TlsConnector,
    authority: String,
}

impl Target {
    pub async fn new(kubeconfig: Kubeconfig) -> Result<Self> {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let authority = config
            .cluster_url
            .authority()
            .context("a server has an address")?;
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config.rustls_client_config()?)),
            authority: authority.to_string(),
        })
    }

    pub async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let name = self.authority.rsplit_once(':').map_or("", |(host, _)| host);
        let stream = self.tls.connect(name.to_owned().try_into()?, stream).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            host: self.authority.clone(),
        })
    }
}

/// One connection; one request at a time.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    /// Sends a request and returns the answer while its body may still be coming.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        media: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, media)
            .header(header::ACCEPT, "application/json")
            .body(Full::new(body))?;
        // The answer before may still be on its way through the connection's task.
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends a request and reads the whole answer, which must be a good one.
    pub async fn send(&mut self, method: Method, path: &str, media: &str, body: Bytes) -> Result<Bytes> {
        let response = self.open(method, path, media, body).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success(),
            "{path}: {status}: {}",
            String::from_utf8_lossy(&bytes)
        );
        Ok(bytes)
    }
}
