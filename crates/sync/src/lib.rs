//! RootSync and RepoSync: a cluster, or a namespace of it, looks like a folder of a Git repository, with chosen rights.
//!
//! Two halves meet through objects in the API server. The [`manager`] gives each sync an account and binds its roles; it
//! never reads a repository. The [`reconciler`] of a sync acts with that account and no other; it never writes a sync.
//!
//! ```text
//! manager      sync -> plan -> ServiceAccount, base Role, bindings, inventory (empty) -> status of the sync
//!                                    |
//!                                    | token
//!                                    v
//! reconciler   Git -> declared objects -> plan -> cluster -> inventory -> status of the sync
//!                                          ^         |
//!                                          +- drift -+
//! ```
//!
//! * **Rights.** The API server decides what a sync may do, as every request carries a token of its own account. The manager
//!   can bind any role, and binds those that the spec names; [`admission`] can require that the editor of a sync may do that.
//! * **Ownership.** An object belongs to the sync that lists it in its inventory and names itself in the object's annotation.
//!   Two syncs never write one object in turns: the first keeps it, and the other reports a conflict.
//! * **Isolation.** Reconcilers are tasks of one process ([`Isolation::Task`]), or one process each ([`Isolation::Pod`]).
//!
//! `docs/sync.md` is the guide for users; `docs/design/sync-reconciler.md` says why the reconciler is built as it is.

pub mod admission;
mod clients;
pub mod manager;
pub mod model;
pub mod names;
mod options;
pub mod reconciler;
pub mod spec;
pub mod sync_status;

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, health::Health};
use writ_process::lease::{Candidate, Timing};

pub use self::{
    clients::Clients,
    model::SyncId,
    options::{DefaultRole, Isolation, Options},
};

/// The advice for a cluster without the objects that syncs need.
const INSTALL: &str = "`writ install sync` creates the namespace, the kinds and the rights that syncs need";

/// The field manager of everything that the manager writes.
pub const FIELD_MANAGER: &str = "reconciler-manager";

/// What the manager and its reconcilers need.
#[derive(Clone)]
pub struct Context {
    /// Makes a client for each sync.
    pub clients: Clients,
    /// A client with the manager's identity.
    pub client: Client,
    /// How syncs are run.
    pub options: Arc<Options>,
    /// Readiness and metrics of the process.
    pub health: Health,
    /// Cancelled when the process must end.
    pub shutdown: CancellationToken,
}

/// Runs the manager, and the reconcilers as tasks unless they are isolated, until shutdown.
pub async fn run(
    clients: Clients,
    options: Options,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    if options.isolation == Isolation::Task {
        reconciler::private_clones(&options.cache)?;
    }
    let context = Context {
        client: clients.manager().clone(),
        clients,
        options: Arc::new(options),
        health,
        shutdown,
    };
    if context.options.require_bind {
        // Every replica answers admission reviews; the manager starts once they are answered.
        tokio::try_join!(admission::run(context.clone()), Box::pin(elected(context)))?;
        return Ok(());
    }
    Box::pin(elected(context)).await
}

/// Runs the manager while this process is the leader.
async fn elected(context: Context) -> Result<(), Error> {
    let Some(identity) = context.options.leader_election.clone() else {
        return manage(context).await;
    };
    context.health.gate("leader election").open();
    let shutdown = context.shutdown.clone();
    let candidate = Candidate::new(
        context.client.clone(),
        model::SYSTEM_NAMESPACE,
        "writ-sync",
        identity,
        Timing::default(),
    )
    .advise(INSTALL);
    candidate
        .run(shutdown, |lost| {
            let context = Context {
                shutdown: lost,
                ..context.clone()
            };
            async move {
                if let Err(error) = manage(context).await {
                    tracing::error!(%error, "the manager ended, standing for election again");
                }
            }
        })
        .await;
    Ok(())
}

/// Runs the manager. The webhook configuration of an earlier process with `--require-bind` would deny every change, so it is
/// removed without that flag.
async fn manage(context: Context) -> Result<(), Error> {
    if !context.options.require_bind {
        admission::retire(&context.client).await;
    }
    manager::run(context).await
}
