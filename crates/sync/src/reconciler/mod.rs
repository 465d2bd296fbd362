//! The reconciler: makes the cluster look like a repository, as that sync's account and as nobody else.
//!
//! One task per sync. It looks for a new commit every period, parses the files, and applies what differs by
//! server-side apply: what others need first, everything of one rank at once. What it made is in an inventory, written
//! before anything is applied, so that nothing is ever forgotten; what the source does not declare any more is pruned.
//! Drift is seen by watches on its own objects only, in the namespaces it uses, and put right at once. What the account
//! may not do is reported by verb and resource while everything else goes on. It writes the status of its own sync and
//! its own inventory, never a sync: finalizers are the manager's.

mod apply;
mod desired;
mod drift;
mod engine;
pub mod error;
mod execute;
mod fetch;
mod finalize;
mod namespaces;
pub mod object;
mod observed;
pub mod parse;
mod plan;
mod rest_mapper;
pub mod source;
mod status;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use kube::{Client, Config};
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use writ_api::kpt::ResourceGroup;
use writ_controller::{Error, error::Context as _, health::Health};
use writ_process::client;

use crate::{
    Context, Options,
    clients::Clients,
    model::{Sync, SyncId},
    names,
};

pub use apply::ownership::Overview;
pub(crate) use source::private_clones;

/// What all reconcilers of a process share.
pub(crate) struct Shared {
    /// Makes clients with a sync's own identity; nothing where the process itself has that identity.
    clients: Identities,
    discovery: rest_mapper::Discovery,
    cache: PathBuf,
    /// Whether RepoSyncs may read repositories on this machine.
    tenants_read_local: bool,
    readers: source::Readers,
    room: source::Room,
    overview: OnceLock<Arc<dyn Overview>>,
}

impl Shared {
    /// Whom to ask for what a reconciler may not read; nobody where each runs on its own.
    fn overview(&self) -> Option<&dyn Overview> {
        self.overview.get().map(|overview| &**overview)
    }
}

/// Whose identity requests carry.
enum Identities {
    /// Each sync's account, by TokenRequest.
    PerSync(Clients),
    /// The one this process runs as.
    Own(Client),
}

/// What a reconciler is told.
pub(crate) struct Inputs {
    sync: channel::Receiver<Arc<Sync>>,
    /// The inventory as it was last seen, by whomever it was written.
    inventory: channel::Receiver<Option<Arc<ResourceGroup>>>,
    poke: Arc<Notify>,
    stop: CancellationToken,
}

struct Task {
    sync: channel::Sender<Arc<Sync>>,
    inventory: channel::Sender<Option<Arc<ResourceGroup>>>,
    poke: Arc<Notify>,
    stop: CancellationToken,
    handle: JoinHandle<()>,
}

/// The reconcilers that run as tasks of this process. Cheap to clone.
#[derive(Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
    running: Arc<Mutex<BTreeMap<SyncId, Task>>>,
}

impl Tasks {
    /// None yet.
    pub fn new(context: &Context) -> Self {
        Self {
            shared: Arc::new(Shared {
                clients: Identities::PerSync(context.clients.clone()),
                discovery: rest_mapper::Discovery::default(),
                cache: context.options.cache.clone(),
                tenants_read_local: context.options.tenants_read_local,
                readers: source::Readers::default(),
                room: source::Room::default(),
                overview: OnceLock::new(),
            }),
            running: Arc::default(),
        }
    }

    /// Whom reconcilers ask for what they may not read.
    pub fn ask(&self, overview: Arc<dyn Overview>) {
        // There is one manager in a process; a second one would know the same.
        let _ = self.shared.overview.set(overview);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SyncId, Task>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the reconciler of a sync, or tells the running one how the sync looks now.
    pub fn ensure(&self, sync: Arc<Sync>) {
        let mut running = self.lock();
        if let Some(task) = running.get(&sync.id)
            && !task.handle.is_finished()
        {
            task.sync.send_if_modified(|known| {
                let newer = known.metadata.resource_version != sync.metadata.resource_version;
                if newer {
                    *known = sync;
                }
                newer
            });
            return;
        }
        let id = sync.id.clone();
        let (sender, receiver) = channel::channel(sync);
        let (inventory, seen) = channel::channel(None);
        let poke = Arc::new(Notify::new());
        let stop = CancellationToken::new();
        let inputs = Inputs {
            sync: receiver,
            inventory: seen,
            poke: poke.clone(),
            stop: stop.clone(),
        };
        let handle = tokio::spawn(engine::run(self.shared.clone(), inputs));
        running.insert(
            id,
            Task {
                sync: sender,
                inventory,
                poke,
                stop,
                handle,
            },
        );
    }

    /// Tells the reconciler of a sync how its inventory looks now.
    pub fn inventory(&self, id: &SyncId, group: &Arc<ResourceGroup>) {
        if let Some(task) = self.lock().get(id) {
            task.inventory.send_if_modified(|known| {
                let version = |group: &ResourceGroup| group.metadata.resource_version.clone();
                let newer = known.as_deref().map(version) != Some(version(group));
                if newer {
                    *known = Some(group.clone());
                }
                newer
            });
        }
    }

    /// Ends the wait of a reconciler that was refused something: its rights may have changed.
    pub fn poke(&self, id: &SyncId) {
        if let Some(task) = self.lock().get(id) {
            task.poke.notify_one();
        }
    }

    /// The same, by the name of its account.
    pub fn poke_account(&self, account: &str) {
        for (id, task) in &*self.lock() {
            if names::reconciler(id) == account {
                task.poke.notify_one();
            }
        }
    }

    /// Stops the reconciler of a sync and waits until it has.
    pub async fn stop(&self, id: &SyncId) {
        let task = self.lock().remove(id);
        if let Some(task) = task {
            task.stop.cancel();
            let _ = task.handle.await;
            let uid = task.sync.borrow().metadata.uid.clone().unwrap_or_default();
            let clones = source::clones_of(&self.shared.cache, id, &uid);
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(clones)).await;
        }
    }

    /// Stops all of them.
    pub async fn stop_all(&self) {
        let tasks: Vec<Task> = std::mem::take(&mut *self.lock()).into_values().collect();
        for task in &tasks {
            task.stop.cancel();
        }
        for task in tasks {
            let _ = task.handle.await;
        }
    }
}

/// Runs one reconciler with the identity of this process, until shutdown: what a Deployment of
/// [`crate::Isolation::Pod`] starts.
pub async fn run_one(
    config: Config,
    options: Options,
    id: SyncId,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    private_clones(&options.cache)?;
    let client = client::connect(config).context(|| "make a client of the API server".to_owned())?;
    let gate = health.gate(format!("watch {id}"));
    let shared = Arc::new(Shared {
        clients: Identities::Own(client.clone()),
        discovery: rest_mapper::Discovery::default(),
        cache: options.cache,
        // In a process of its own it finds nobody else's repositories.
        tenants_read_local: true,
        readers: source::Readers::default(),
        room: source::Room::default(),
        overview: OnceLock::new(),
    });
    engine::follow(shared, client, id, gate, shutdown).await
}
