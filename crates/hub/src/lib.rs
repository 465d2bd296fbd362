//! Controllers and admission that run on the hub.
//!
//! Every controller is a folder of this crate and a row in [`CONTROLLERS`]. They know nothing of each other:
//! they meet through objects in the hub's API server.

pub mod options;

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;
use writ_runtime::{
    Error,
    health::Health,
    supervise::{self, Controller},
};

pub use options::Options;

/// The field manager of everything that the hub writes.
pub const MANAGER: &str = "writ-hub";

/// What every controller of the hub is given.
#[derive(Clone)]
pub struct Context {
    /// A client of the hub's API server.
    pub client: Client,
    /// How the hub was started.
    pub options: Arc<Options>,
    /// Readiness and metrics of the process.
    pub health: Health,
    /// Cancelled when the process shall end.
    pub shutdown: CancellationToken,
}

/// Every controller, by the name of its folder.
pub const CONTROLLERS: &[Controller<Context>] = &[];

/// Runs the controllers that the options name (all, if they name none) until shutdown.
pub async fn run(
    client: Client,
    options: Options,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let controllers = supervise::select(CONTROLLERS, &options.controllers)?;
    let context = Context {
        client,
        options: Arc::new(options),
        health,
        shutdown: shutdown.clone(),
    };
    supervise::run(controllers, context, shutdown).await;
    Ok(())
}
