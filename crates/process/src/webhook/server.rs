//! HTTPS with a certificate that can be swapped while serving.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use writ_controller::Error;

/// More connections than API servers open; the rest waits in the kernel's queue.
const MAX_CONNECTIONS: usize = 512;
/// A client that does not finish its handshake by then is dropped.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// The certificate in use.
#[derive(Debug)]
pub struct Slot(ArcSwap<CertifiedKey>);

impl Slot {
    /// Starts with this certificate.
    pub fn new(key: Arc<CertifiedKey>) -> Self {
        Self(ArcSwap::new(key))
    }

    /// Uses this certificate for every connection from now on.
    pub fn set(&self, key: Arc<CertifiedKey>) {
        self.0.store(key);
    }
}

impl ResolvesServerCert for Slot {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Listens on the address.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address)
        .await
        .map_err(|e| Error::io(format!("listen for webhooks on {address}"), e))
}

/// Serves until shutdown, then lets the requests in flight finish.
pub async fn serve(listener: TcpListener, slot: Arc<Slot>, router: Router, shutdown: CancellationToken) {
    let mut config = ServerConfig::builder_with_provider(super::certs::provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .map(|builder| builder.with_no_client_auth().with_cert_resolver(slot));
    if let Ok(config) = &mut config {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    let acceptor = match config {
        Ok(config) => TlsAcceptor::from(Arc::new(config)),
        Err(error) => {
            tracing::error!(%error, "TLS cannot be set up");
            return;
        }
    };
    let (tasks, slots) = (TaskTracker::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        let Ok(permit) = slots.clone().acquire_owned().await else {
            break;
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    continue;
                }
            },
        };
        let (acceptor, shutdown) = (acceptor.clone(), shutdown.clone());
        let service = TowerToHyperService::new(router.clone());
        tasks.spawn(async move {
            let _permit = permit;
            let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await else {
                return;
            };
            let builder = Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(tls), service);
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = shutdown.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
    tasks.close();
    // Requests have at most the time an API server waits for a webhook.
    let _ = tokio::time::timeout(Duration::from_secs(30), tasks.wait()).await;
}
