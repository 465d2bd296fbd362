//! What runs in a managed cluster.
//!
//! Every controller is a folder of this crate and a row in [`CONTROLLERS`]. They know nothing of each other:
//! they meet through objects in the two API servers, and share one [`RecreateLock`].

pub mod addons;
mod caches;
pub mod grants;
pub mod options;
mod owner;
pub mod registration;
mod token_claims;
pub mod tokens;
pub mod work;

use std::sync::Arc;

use futures::FutureExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, health::Health};
use writ_process::{
    crds,
    supervise::{self, Controller},
};

pub use caches::Caches;
pub use options::Options;

/// The field manager of everything that the agent writes.
pub const MANAGER: &str = "writ-agent";

/// The kinds that the agent works on, on the hub.
const HUB_KINDS: [&str; 3] = ["ManagedCluster", "ManagedServiceAccount", "ManifestWork"];

/// The kinds of ours that live on a managed cluster.
const SPOKE_KINDS: [&str; 3] = ["AppliedManifestWork", "ClusterClaim", "NamespaceGrant"];

/// Write-locked while an object is deleted and recreated; read-locked before creating an object because none exists, so
/// that the gap is not mistaken for absence.
pub type RecreateLock = Arc<RwLock<()>>;

/// What every controller of the agent is given.
#[derive(Clone)]
pub struct Context {
    /// A client of the hub, limited to the namespace of this cluster.
    pub hub: Client,
    /// A client of the managed cluster.
    pub spoke: Client,
    /// How the agent was started.
    pub options: Arc<Options>,
    /// The caches that controllers share.
    pub caches: Arc<Caches>,
    /// Held while an object is deleted and recreated.
    pub recreate_lock: RecreateLock,
    /// Readiness and metrics of the process.
    pub health: Health,
    /// Cancelled when the process shall end.
    pub shutdown: CancellationToken,
}

/// Every controller, by the name of its folder.
pub const CONTROLLERS: &[Controller<Context>] = &[
    ("addons", |context| addons::run(context).boxed()),
    ("grants", |context| grants::run(context).boxed()),
    ("registration", |context| registration::run(context).boxed()),
    ("tokens", |ctx| tokens::run(ctx).boxed()),
    ("work", |context| work::run(context).boxed()),
];

impl Context {
    /// A context for one run, without any watch yet.
    pub fn new(
        hub: Client,
        spoke: Client,
        options: Options,
        health: Health,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            hub,
            caches: Arc::new(Caches::new(spoke.clone(), shutdown.clone())),
            spoke,
            options: Arc::new(options),
            recreate_lock: RecreateLock::default(),
            health,
            shutdown,
        }
    }

    /// The names of the controllers that this agent runs, in order.
    pub fn running_controllers(&self) -> Vec<String> {
        let mut names: Vec<String> = CONTROLLERS
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .filter(|name| self.options.controllers.is_empty() || self.options.controllers.contains(name))
            .collect();
        names.sort_unstable();
        names
    }
}

/// Compares the definitions of the hub and of the managed cluster with ours, and logs which features are off because
/// an older one prunes their fields.
pub async fn compare_definitions(hub: &Client, spoke: &Client) {
    let is = |crd: &CustomResourceDefinition, kinds: &[&str]| {
        crd.spec.group != writ_api::proxy::GROUP && kinds.contains(&&*crd.spec.names.kind)
    };
    let ours = writ_api::definitions_of(|crd| is(crd, &HUB_KINDS) || is(crd, &SPOKE_KINDS));
    let (hub_kinds, spoke_kinds): (Vec<_>, Vec<_>) = ours.into_iter().partition(|crd| is(crd, &HUB_KINDS));
    let (on_hub, on_spoke) = futures::join!(
        crds::check_documented(hub, &hub_kinds),
        crds::check(spoke, &spoke_kinds)
    );
    crds::report("hub", on_hub, writ_api::FEATURES);
    crds::report("cluster", on_spoke, writ_api::FEATURES);
}

/// Runs the controllers that the options name (all, if they name none) until shutdown.
pub async fn run(
    hub: Client,
    spoke: Client,
    options: Options,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let controllers = supervise::select(CONTROLLERS, &options.controllers)?;
    let context = Context::new(hub, spoke, options, health, shutdown.clone());
    let health = context.health.clone();
    supervise::run(controllers, context, &health, shutdown).await;
    Ok(())
}
