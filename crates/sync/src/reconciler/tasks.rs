//! Where reconcilers run: as tasks of the manager's process, or one alone in a process of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt as _;
use kube::{
    Api, Config,
    api::DynamicObject,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use writ_api::kpt::ResourceGroup;
use writ_controller::{Error, error::Context as _, health::Health, tolerant::guarded};
use writ_process::client;

use super::{
    apply::ManagerView,
    engine::{self, Inputs},
    shared::{Identities, Shared},
    source::{clones_of, private_clones},
};
use crate::{
    Context, Options,
    model::{Sync, SyncId},
    names,
};

/// A running reconciler, and its inputs.
struct Task {
    sync: channel::Sender<Arc<Sync>>,
    inventory: channel::Sender<Option<Arc<ResourceGroup>>>,
    poke: Arc<Notify>,
    stop: CancellationToken,
    handle: JoinHandle<()>,
}

impl Task {
    fn start(shared: Arc<Shared>, sync: Arc<Sync>, stop: CancellationToken) -> Self {
        let (sync, sync_receiver) = channel::channel(sync);
        let (inventory, inventory_receiver) = channel::channel(None);
        let poke = Arc::new(Notify::new());
        let inputs = Inputs {
            sync: sync_receiver,
            inventory: inventory_receiver,
            poke: poke.clone(),
            stop: stop.clone(),
        };
        Self {
            sync,
            inventory,
            poke,
            stop,
            handle: tokio::spawn(engine::run(shared, inputs)),
        }
    }
}

/// The reconcilers that run as tasks of this process. Cheap to clone.
#[derive(Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
    running: Arc<Mutex<BTreeMap<SyncId, Task>>>,
}

impl Tasks {
    /// No task yet.
    pub fn new(context: &Context) -> Self {
        let identities = Identities::PerSync(context.clients.clone());
        Self {
            shared: Arc::new(Shared::new(identities, &context.options)),
            running: Arc::default(),
        }
    }

    /// Sets the view of the manager, which reconcilers ask for what they may not read.
    pub fn set_manager_view(&self, view: Arc<dyn ManagerView>) {
        self.shared.set_manager_view(view);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SyncId, Task>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the reconciler of a sync, or gives the running one the sync as it is now.
    pub fn ensure(&self, sync: Arc<Sync>) {
        let mut running = self.lock();
        if let Some(task) = running.get(&sync.id)
            && !task.handle.is_finished()
        {
            task.sync.send_if_modified(|known| {
                let is_new = known.metadata.resource_version != sync.metadata.resource_version;
                if is_new {
                    *known = sync;
                }
                is_new
            });
            return;
        }
        let id = sync.id.clone();
        let task = Task::start(self.shared.clone(), sync, CancellationToken::new());
        running.insert(id, task);
    }

    /// Gives the reconciler of a sync its inventory as it is now.
    pub fn set_inventory(&self, id: &SyncId, group: &Arc<ResourceGroup>) {
        if let Some(task) = self.lock().get(id) {
            task.inventory.send_if_modified(|known| {
                let version = |group: &ResourceGroup| group.metadata.resource_version.clone();
                let is_new = known.as_deref().map(version) != Some(version(group));
                if is_new {
                    *known = Some(group.clone());
                }
                is_new
            });
        }
    }

    /// Ends the wait of a reconciler that was refused something, as its rights may have changed.
    pub fn poke(&self, id: &SyncId) {
        if let Some(task) = self.lock().get(id) {
            task.poke.notify_one();
        }
    }

    /// Like [`Self::poke`], by the name of the account.
    pub fn poke_account(&self, account: &str) {
        for (id, task) in &*self.lock() {
            if names::reconciler(id) == account {
                task.poke.notify_one();
            }
        }
    }

    /// Stops the reconciler of a sync, waits until it has ended, and removes its clones.
    pub async fn stop(&self, id: &SyncId) {
        let task = self.lock().remove(id);
        if let Some(task) = task {
            task.stop.cancel();
            let _ = task.handle.await;
            let uid = task.sync.borrow().metadata.uid.clone().unwrap_or_default();
            let clones = clones_of(&self.shared.cache, id, &uid);
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(clones)).await;
        }
    }

    /// Stops all reconcilers, and waits until they have ended.
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

/// Runs one reconciler with the identity of this process, until shutdown. This is what a Deployment of
/// [`crate::Isolation::Pod`] starts. It watches its own sync and its own inventory.
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
    let shared = Arc::new(Shared::new(Identities::Own(client.clone()), &options));
    let only = watcher::Config::default().fields(&format!("metadata.name={}", id.name));
    let syncs: Api<DynamicObject> = Api::namespaced_with(client.clone(), &id.namespace, &id.kind.resource());
    let syncs = watcher(syncs, only.clone()).default_backoff().applied_objects();
    let groups = guarded::<ResourceGroup>(Api::namespaced(client, &id.namespace), only);
    let groups = groups.default_backoff().applied_objects();
    let (mut syncs, mut groups) = (std::pin::pin!(syncs), std::pin::pin!(groups));
    let mut inventory: Option<Arc<ResourceGroup>> = None;
    let mut task: Option<Task> = None;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(group) = groups.next() => {
                if let Ok(group) = group {
                    inventory = Some(Arc::new(group));
                    if let Some(task) = &task {
                        task.inventory.send_replace(inventory.clone());
                    }
                }
                continue;
            }
            event = syncs.next() => event,
        };
        let Some(event) = event else { break };
        let object = match event {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(sync = %id, %error, "the watch on the sync failed, will try again");
                continue;
            }
        };
        gate.open();
        let Some(sync) = Sync::read(id.kind, &object) else {
            continue;
        };
        if sync.spec.is_err() && !sync.deleting() {
            continue;
        }
        if let Some(task) = &task {
            // The manager has bound something, or a role or namespace exists by now.
            let rights_changed = task.sync.borrow().status.role_refs != sync.status.role_refs;
            task.sync.send_replace(Arc::new(sync));
            if rights_changed {
                task.poke.notify_one();
            }
        } else {
            let new = Task::start(shared.clone(), Arc::new(sync), shutdown.clone());
            new.inventory.send_replace(inventory.clone());
            task = Some(new);
        }
    }
    if let Some(task) = task {
        let _ = task.handle.await;
    }
    Ok(())
}
