//! RootSync and RepoSync: their bindings and their reconciler.
//!
//! [`manager`] keeps the account and the rights of every sync; [`reconciler`] reads a sync's repository and makes the
//! cluster look like it, with that account and no other. They meet through objects in the API server: the manager
//! never reads a repository, the reconciler never writes a sync.

pub mod admission;
mod clients;
pub mod manager;
pub mod model;
pub mod names;
pub mod reconciler;
pub mod spec;
pub mod sync_status;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use kube::Client;
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, health::Health};
use writ_process::lease::{Candidate, Timing};

pub use clients::Clients;
pub use model::SyncId;

/// What to do on a cluster that lacks what syncs need.
const INSTALL: &str = "`writ install sync` makes the namespace, the kinds and the rights that syncs need";

/// The field manager of everything that the manager writes.
pub const FIELD_MANAGER: &str = "reconciler-manager";

/// The role of a RootSync that names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultRole {
    /// The ClusterRole `cluster-admin`, as ever.
    #[default]
    ClusterAdmin,
    /// None.
    None,
}

/// Where reconcilers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// As tasks of this process.
    #[default]
    Task,
    /// Each in a Deployment of its own.
    Pod,
}

/// How syncs are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The role of a RootSync that names none.
    pub default_role: DefaultRole,
    /// Where reconcilers run.
    pub isolation: Isolation,
    /// Whether whoever edits a sync must be allowed to `bind` its roles and to `get` its Secrets.
    pub require_bind: bool,
    /// Where the API server reaches the admission webhook, outside of a cluster; inside it is the Service `writ-sync`.
    pub webhook_url: Option<String>,
    /// Where the admission webhook listens.
    pub webhook_listen: SocketAddr,
    /// A folder with the webhook's certificates, as cert-manager writes them; otherwise it makes its own.
    pub webhook_certs: Option<PathBuf>,
    /// Where clones are kept.
    pub cache: PathBuf,
    /// Whether RepoSyncs may read repositories on this machine. A tenant could then read all that this process can.
    pub tenants_read_local: bool,
    /// Who this process is in the election of the one that acts; `None` means it acts alone.
    pub leader_election: Option<String>,
    /// The image of the Deployments, for [`Isolation::Pod`].
    pub image: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_role: DefaultRole::default(),
            isolation: Isolation::default(),
            require_bind: false,
            webhook_url: None,
            webhook_listen: SocketAddr::from(([0, 0, 0, 0], 9443)),
            webhook_certs: None,
            cache: std::env::temp_dir().join("writ-sync"),
            tenants_read_local: false,
            leader_election: None,
            image: concat!("ghcr.io/writ-dev/writ:", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// What both halves are given.
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
    /// Cancelled when the process shall end.
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
        // The gate first: no sync is worked on that nobody has checked. Every replica answers.
        tokio::try_join!(admission::run(context.clone()), Box::pin(elected(context)))?;
        return Ok(());
    }
    Box::pin(elected(context)).await
}

/// Runs the manager while this process is the one that acts.
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

/// Runs the manager. Without the gate, the one that an earlier process left behind would refuse every change.
async fn manage(context: Context) -> Result<(), Error> {
    if !context.options.require_bind {
        admission::retire(&context.client).await;
    }
    manager::run(context).await
}
