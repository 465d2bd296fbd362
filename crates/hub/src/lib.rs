//! Controllers and admission that run on the hub.
//!
//! Every controller is a folder of this crate and a row in [`CONTROLLERS`]. They know nothing of each other:
//! they meet through objects in the hub's API server.

pub mod admission;
mod advice;
pub mod agent_identity;
pub mod caches;
pub mod cluster_permission;
pub mod cluster_set;
mod csr;
pub mod managed_service_account;
pub mod names;
pub mod options;
pub mod placement;
pub mod registration;
pub mod replica_set;
mod selector;
pub mod work_ttl;

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use kube::Client;
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, health::Health};
use writ_process::{
    crds,
    lease::{Candidate, Timing},
    supervise::{self, Controller},
};

pub use caches::Caches;
pub use options::Options;

/// The field manager of everything that the hub writes.
pub const MANAGER: &str = "writ-hub";

/// The namespace on the hub that is writ's own.
pub const NAMESPACE: &str = "open-cluster-management-hub";

/// What every controller of the hub is given.
#[derive(Clone)]
pub struct Context {
    /// A client of the hub's API server.
    pub client: Client,
    /// How the hub was started.
    pub options: Arc<Options>,
    /// The caches that controllers share.
    pub caches: Arc<Caches>,
    /// Readiness and metrics of the process.
    pub health: Health,
    /// Cancelled when the process shall end.
    pub shutdown: CancellationToken,
}

/// Every controller, by the name of its folder.
pub const CONTROLLERS: &[Controller<Context>] = &[
    ("cluster_permission", |context| {
        cluster_permission::run(context).boxed()
    }),
    ("managed_service_account", |context| {
        managed_service_account::run(context).boxed()
    }),
    ("cluster_set", |context| cluster_set::run(context).boxed()),
    ("placement", |context| placement::run(context).boxed()),
    ("registration", |context| registration::run(context).boxed()),
    ("replica_set", |context| replica_set::run(context).boxed()),
    ("work_ttl", |context| work_ttl::run(context).boxed()),
];

/// The kinds that are of no use on a hub: they belong to managed clusters and to syncs.
const ELSEWHERE: [&str; 6] = [
    "AppliedManifestWork",
    "ClusterClaim",
    "NamespaceGrant",
    "RepoSync",
    "ResourceGroup",
    "RootSync",
];

/// Runs the controllers that the options name (all, if they name none) until shutdown.
///
/// With leader election, the controllers run while this process leads; what every replica must do (admission)
/// does not wait for that.
pub async fn run(
    client: Client,
    options: Options,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let controllers = supervise::select(CONTROLLERS, &options.controllers)?;
    let ours = writ_api::definitions_of(|crd| !ELSEWHERE.contains(&&*crd.spec.names.kind));
    crds::report("hub", crds::check(&client, &ours).await, writ_api::FEATURES);
    drop(ours);
    let election = options.leader_election.clone();
    let context = Context {
        caches: Arc::new(Caches::new(client.clone(), shutdown.clone())),
        client,
        options: Arc::new(options),
        health,
        shutdown: shutdown.clone(),
    };
    let webhooks: &[Controller<Context>] = &[("admission", |context| admission::run(context).boxed())];
    let webhooks = if context.options.admission.webhooks {
        webhooks.to_vec()
    } else {
        Vec::new()
    };
    let health = context.health.clone();
    let patience = Duration::from_secs(30);
    let webhooks = supervise::run_with_grace(webhooks, context.clone(), &health, shutdown.clone(), patience);
    let controllers = async {
        let Some(identity) = election else {
            supervise::run(controllers, context, &health, shutdown).await;
            return Ok(());
        };
        context.health.gate("leader election").open();
        Candidate::new(
            context.client.clone(),
            NAMESPACE,
            "writ-hub",
            identity,
            Timing::default(),
        )
        .advise(advice::NAMESPACE_MISSING)
        .run(shutdown, |lost| {
            let context = Context {
                // A leader starts from what the server shows, not from what it knew the last time.
                caches: Arc::new(Caches::new(context.client.clone(), lost.clone())),
                shutdown: lost.clone(),
                ..context.clone()
            };
            supervise::run(controllers.clone(), context, &health, lost)
        })
        .await;
        Ok(())
    };
    let ((), controllers) = futures::join!(webhooks, controllers);
    controllers
}
