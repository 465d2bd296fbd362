//! What the long-running commands share: health endpoint, shutdown, identity for leader election.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use writ_controller::health::Health;
use writ_process::health;
use writ_process::supervise;

/// The exit code of an interrupted command, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// The flags of every long-running command.
#[derive(Clone, Debug, Args)]
pub struct DaemonFlags {
    /// Serve /livez, /readyz and /metrics on this address.
    #[arg(long, value_name = "ADDRESS")]
    pub health_address: Option<SocketAddr>,
}

/// A token that is cancelled on SIGTERM or Ctrl-C. A second Ctrl-C ends the process without a tidy shutdown.
pub fn shutdown() -> Result<CancellationToken> {
    let stop = supervise::shutdown_on_signal()?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        second_interrupt(&stopping).await;
        std::process::exit(INTERRUPTED.into());
    });
    Ok(stop)
}

/// Waits for another Ctrl-C after shutdown has begun.
pub async fn second_interrupt(stopping: &CancellationToken) {
    stopping.cancelled().await;
    match signal(SignalKind::interrupt()) {
        Ok(mut again) => {
            again.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// Readiness and shutdown of this process; starts the health server if the flags name an address.
pub async fn start(flags: &DaemonFlags) -> Result<(Health, CancellationToken)> {
    let (health, shutdown) = (Health::default(), shutdown()?);
    if let Some(address) = flags.health_address {
        let bound = health::serve(&health, address, shutdown.clone()).await?;
        tracing::info!("health on http://{bound}");
    }
    let ready = health.clone();
    tokio::spawn(async move {
        ready.ready().await;
        tracing::info!("ready");
    });
    Ok((health, shutdown))
}

/// The identity of this process among its replicas: the name of the pod or machine, and the process id.
pub fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".into());
    format!("{host}-{}", std::process::id())
}
