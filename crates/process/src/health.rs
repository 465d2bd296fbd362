//! `/livez`, `/readyz`, `/metrics` over HTTP.

use std::net::SocketAddr;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, health::Health};

/// The routes, to be served by [`serve`] or merged into another server.
pub fn router(health: &Health) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health.clone())
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
    let router = router(health);
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
    if health.is_ready() {
        return (StatusCode::OK, "ok".into());
    }
    let mut closed = health.closed();
    if closed.is_empty() {
        closed.push("the first part to start".into());
    }
    let text = format!("waiting for: {}\n", closed.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

async fn metrics(
    State(health): State<Health>,
) -> Result<([(&'static str, &'static str); 1], String), StatusCode> {
    let text = health.metrics().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
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
    async fn readyz_of_unready_process_names_what_it_waits_for() {
        let health = Health::default();
        let gate = health.gate("watch A");
        let (code, text) = readyz(State(health.clone())).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "waiting for: watch A\n");
        gate.open();
        assert_eq!(readyz(State(health)).await.0, StatusCode::OK);
    }
}
