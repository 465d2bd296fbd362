//! Where reconcilers run: as tasks of the manager's process, or one alone in a process of its own.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Api, Client, Config, Resource, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use writ_api::{
    configsync::{RepoSync, RootSync},
    kpt::ResourceGroup,
};
use writ_controller::{
    Controller, Error, Name, Next, Watch, error::Context as _, health::Health, tolerant::Tolerant,
};
use writ_process::client;

use super::{
    apply::ManagerView,
    engine::{self, Inputs},
    shared::{Identities, Shared},
    source::{clones_of, private_clones},
};
use crate::{
    Context, Options,
    model::{Sync, SyncId, SyncKind},
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
    fn start(shared: Arc<Shared>, sync: Arc<Sync>) -> Self {
        let stop = CancellationToken::new();
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
    /// No task yet. Each will act as the account of its sync.
    pub fn new(context: &Context) -> Self {
        let identities = Identities::PerSync(context.clients.clone());
        Self::with(Shared::new(identities, &context.options))
    }

    fn with(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
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
            let mut rights_changed = false;
            task.sync.send_if_modified(|known| {
                let is_new = known.metadata.resource_version != sync.metadata.resource_version;
                if is_new {
                    // The manager has bound a role, or a role or a namespace exists by now.
                    rights_changed = known.status.role_refs != sync.status.role_refs;
                    *known = sync;
                }
                is_new
            });
            if rights_changed {
                task.poke.notify_one();
            }
            return;
        }
        let id = sync.id.clone();
        let task = Task::start(self.shared.clone(), sync);
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
    let syncs = match id.kind {
        SyncKind::Root => watch_one::<RootSync>(&client, &id)
            .keep(Sync::from)
            .start(&shutdown),
        SyncKind::Repo => watch_one::<RepoSync>(&client, &id)
            .keep(Sync::from)
            .start(&shutdown),
    };
    let inventories = watch_one::<ResourceGroup>(&client, &id).start(&shutdown);
    let controller = Controller::new("sync", &health)
        .watch(&syncs, |_| [()])
        .watch_unawaited(&inventories, |_| [()]);
    let tasks = Tasks::with(Shared::new(Identities::Own(client), &options));
    let name = Name::new(id.namespace.clone(), id.name.clone());
    controller
        .run(1, &shutdown, |()| {
            // A sync whose spec does not parse is left as it is, unless its objects must be removed.
            let sync = syncs.partial(&name).and_then(|(sync, problem)| match problem {
                None => Some(sync),
                Some(problem) => sync.deleting().then(|| Arc::new(sync.with_problem(&problem))),
            });
            if let Some(sync) = sync {
                tasks.ensure(sync);
                if let Some(group) = inventories.get(&name) {
                    tasks.set_inventory(&id, &group);
                }
            }
            ready(Ok(Next::Wait))
        })
        .await;
    tasks.stop_all().await;
    Ok(())
}

/// A watch on the one object with the name of a sync.
fn watch_one<K>(client: &Client, id: &SyncId) -> Watch<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Default
        + Send
        + std::marker::Sync
        + 'static,
{
    let api = Api::<Tolerant<K>>::namespaced(client.clone(), &id.namespace);
    Watch::new(api).fields(&format!("metadata.name={}", id.name))
}
