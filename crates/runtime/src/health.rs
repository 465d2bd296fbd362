//! `/livez`, `/readyz`, `/metrics`: a process is ready when every watch that it needs is initialised.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// What is known of a process: which parts are ready, and its metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Health {
    gates: Arc<watch::Sender<BTreeMap<String, bool>>>,
    registry: Arc<Mutex<Registry>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            gates: Arc::new(watch::Sender::default()),
            registry: Arc::default(),
        }
    }
}

/// One thing that must be initialised before the process is ready. Dropping it unopened leaves it closed.
#[derive(Debug)]
pub struct Gate {
    name: String,
    gates: Arc<watch::Sender<BTreeMap<String, bool>>>,
}

impl Gate {
    /// Says that this part is initialised.
    pub fn open(&self) {
        self.gates
            .send_if_modified(|gates| gates.insert(self.name.clone(), true) != Some(true));
    }
}

impl Health {
    /// Adds a part that must be initialised, such as `watch ManifestWorks`.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let name = name.into();
        self.gates.send_modify(|gates| {
            gates.entry(name.clone()).or_insert(false);
        });
        Gate {
            name,
            gates: self.gates.clone(),
        }
    }

    /// The parts that are not initialised yet.
    pub fn closed(&self) -> Vec<String> {
        self.gates
            .borrow()
            .iter()
            .filter(|(_, open)| !**open)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Waits until at least one part was named and all are initialised.
    pub async fn ready(&self) {
        let mut gates = self.gates.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = gates
            .wait_for(|gates| !gates.is_empty() && gates.values().all(|open| *open))
            .await;
    }

    /// The metrics of the process, to register more.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The routes, to be served by [`serve`] or merged into another server.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }
}

/// Serves the routes over plain HTTP until shutdown; returns once the address is bound, with that address.
pub async fn serve(
    health: &Health,
    address: SocketAddr,
    shutdown: CancellationToken,
) -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|e| Error::io(format!("listen on {address}"), e))?;
    let bound = listener
        .local_addr()
        .map_err(|e| Error::io("read the listening address", e))?;
    let router = health.router();
    tokio::spawn(async move {
        let served = axum::serve(listener, router)
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "the health server stopped");
        }
    });
    Ok(bound)
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    match health.closed() {
        closed if closed.is_empty() => (StatusCode::OK, "ok".into()),
        closed => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("waiting for: {}\n", closed.join(", ")),
        ),
    }
}

async fn metrics(
    State(health): State<Health>,
) -> Result<([(&'static str, &'static str); 1], String), StatusCode> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &health.registry())
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((
        [(
            "content-type",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        text,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_means_every_gate_is_open() {
        let health = Health::default();
        let (a, b) = (health.gate("watch A"), health.gate("watch B"));
        a.open();
        assert_eq!(health.closed(), ["watch B"]);
        assert_eq!(
            readyz(State(health.clone())).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        b.open();
        health.ready().await;
        assert_eq!(readyz(State(health)).await.0, StatusCode::OK);
    }
}
