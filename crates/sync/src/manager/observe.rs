//! Everything that can change what a sync shall have, and the copies of it that passes read.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    hash::Hash,
    sync::{Arc, PoisonError, RwLock},
};

use futures::{Stream, StreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use writ_api::{configsync::RoleRefKind, kpt::ResourceGroup};
use writ_controller::{
    health::{Gate, Health},
    queue::Queue,
    tolerant::{Guarded, guarded},
};

use super::{
    config_sync_bindings::{Legacy, Shared as _},
    plan::World,
};
use crate::{
    INSTALL,
    model::{SYSTEM_NAMESPACE, Sync, SyncId, SyncKind},
    names::{self, MANAGED_BY, MANAGED_BY_VALUE},
    reconciler::Tasks,
    spec::roles_asked,
};

/// Every sync, read once.
type Syncs = Arc<RwLock<BTreeMap<SyncId, Arc<Sync>>>>;

/// What is known of the cluster.
#[derive(Clone)]
pub struct Stores {
    syncs: Syncs,
    /// Accounts made for syncs.
    pub accounts: Store<ServiceAccount>,
    /// Base roles made for syncs.
    pub roles: Store<Role>,
    /// Bindings made for syncs.
    pub role_bindings: Store<RoleBinding>,
    /// Bindings made for syncs.
    pub cluster_role_bindings: Store<ClusterRoleBinding>,
    /// Inventories made for syncs.
    inventories: Store<ResourceGroup>,
    /// Deployments made for syncs.
    pub deployments: Store<Deployment>,
    /// Bindings that syncs share, made by others.
    pub legacy: Legacy,
    namespaces: Store<PartialObjectMeta<Namespace>>,
    all_roles: Store<PartialObjectMeta<Role>>,
    all_cluster_roles: Store<PartialObjectMeta<ClusterRole>>,
}

fn read(syncs: &Syncs) -> std::sync::RwLockReadGuard<'_, BTreeMap<SyncId, Arc<Sync>>> {
    syncs.read().unwrap_or_else(PoisonError::into_inner)
}

impl Stores {
    /// The sync, if it is there.
    pub fn sync(&self, id: &SyncId) -> Option<Arc<Sync>> {
        read(&self.syncs).get(id).cloned()
    }

    /// The sync that managed objects call so.
    pub fn sync_called(&self, manager: &str) -> Option<SyncId> {
        let syncs = read(&self.syncs);
        syncs
            .keys()
            .find(|id| names::manager_value(id) == manager)
            .cloned()
    }

    /// The inventory of a sync.
    pub fn inventory(&self, id: &SyncId) -> Option<Arc<ResourceGroup>> {
        self.inventories
            .get(&ObjectRef::new(&id.name).within(&id.namespace))
    }

    /// Whether the namespace is going away; `None` if this copy does not know it, which may be because it is old.
    pub fn terminating(&self, namespace: &str) -> Option<bool> {
        let namespace = self.namespaces.get(&ObjectRef::new(namespace))?;
        Some(namespace.metadata.deletion_timestamp.is_some())
    }
}

impl World for Stores {
    fn has_namespace(&self, name: &str) -> bool {
        self.namespaces
            .get(&ObjectRef::new(name))
            .is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none())
    }

    fn has_role(&self, kind: RoleRefKind, namespace: Option<&str>, name: &str) -> bool {
        match (kind, namespace) {
            (RoleRefKind::ClusterRole, _) => self.all_cluster_roles.get(&ObjectRef::new(name)).is_some(),
            (RoleRefKind::Role, Some(namespace)) => self
                .all_roles
                .get(&ObjectRef::new(name).within(namespace))
                .is_some(),
            (RoleRefKind::Role, None) => false,
        }
    }

    fn owner(&self, account: &str) -> Option<SyncId> {
        let syncs = read(&self.syncs);
        let same = syncs
            .values()
            .filter(|sync| names::reconciler(&sync.id) == account);
        let since = |sync: &Sync| sync.metadata.creation_timestamp.as_ref().map(|at| at.0);
        let oldest = same.min_by(|a, b| since(a).cmp(&since(b)).then_with(|| a.id.cmp(&b.id)));
        oldest.map(|sync| sync.id.clone())
    }
}

/// Starts every watch; the passes that their events ask for go to the queue.
pub fn start(
    client: &Client,
    health: &Health,
    queue: &Queue<SyncId>,
    tasks: &Tasks,
    running: &mut JoinSet<()>,
) -> Stores {
    let ours = watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGED_BY_VALUE}"));
    let mut start = Start {
        client,
        health,
        running,
    };

    let syncs = Syncs::default();
    start.syncs(SyncKind::Root, queue, &syncs);
    start.syncs(SyncKind::Repo, queue, &syncs);

    // Roles and namespaces matter to the syncs that name them, and to reconcilers that were refused something.
    let role_changed = |kind: RoleRefKind| {
        let (queue, tasks, syncs) = (queue.clone(), tasks.clone(), syncs.clone());
        move |namespace: Option<&str>, name: &str| {
            for sync in read(&syncs).values() {
                let Ok(spec) = &sync.spec else { continue };
                let (asked, _) = roles_asked(spec);
                let named = asked.iter().any(|role| {
                    role.kind == kind
                        && role.name == name
                        && (kind == RoleRefKind::ClusterRole || role.namespace.as_deref() == namespace)
                });
                if named {
                    queue.add(sync.id.clone());
                }
                // A RepoSync's rights come from bindings that it does not name.
                if named || sync.id.kind == SyncKind::Repo {
                    tasks.poke(&sync.id);
                }
            }
        }
    };
    let namespace_changed = {
        let (queue, tasks, syncs) = (queue.clone(), tasks.clone(), syncs.clone());
        move |name: &str| {
            for sync in read(&syncs).values() {
                let Ok(spec) = &sync.spec else { continue };
                let named = roles_asked(spec)
                    .0
                    .iter()
                    .any(|role| role.namespace.as_deref() == Some(name));
                if named || *sync.id.namespace == *name {
                    queue.add(sync.id.clone());
                }
                tasks.poke(&sync.id);
            }
        }
    };

    let stores = Stores {
        accounts: start.owned(
            Api::namespaced(client.clone(), SYSTEM_NAMESPACE),
            ours.clone(),
            "ServiceAccounts",
            queue,
        ),
        roles: start.owned(Api::all(client.clone()), ours.clone(), "Roles of syncs", queue),
        role_bindings: start.owned(
            Api::all(client.clone()),
            ours.clone(),
            "RoleBindings of syncs",
            queue,
        ),
        cluster_role_bindings: start.owned(
            Api::all(client.clone()),
            ours.clone(),
            "ClusterRoleBindings of syncs",
            queue,
        ),
        inventories: start.owned(Api::all(client.clone()), ours.clone(), "ResourceGroups", queue),
        deployments: start.owned(
            Api::namespaced(client.clone(), SYSTEM_NAMESPACE),
            ours,
            "Deployments of syncs",
            queue,
        ),
        legacy: Legacy::default(),
        namespaces: start.names("Namespaces", move |namespace: &PartialObjectMeta<Namespace>| {
            namespace_changed(&namespace.name_any());
        }),
        all_roles: {
            let changed = role_changed(RoleRefKind::Role);
            start.names("Roles", move |role: &PartialObjectMeta<Role>| {
                // Base roles are nobody's roleRef.
                if names::id_of(role.labels()).is_none() {
                    changed(role.namespace().as_deref(), &role.name_any());
                }
            })
        },
        all_cluster_roles: {
            let changed = role_changed(RoleRefKind::ClusterRole);
            start.names("ClusterRoles", move |role: &PartialObjectMeta<ClusterRole>| {
                changed(None, &role.name_any());
            })
        },
        syncs: syncs.clone(),
    };
    // What somebody else bound to a reconciler's account ends that reconciler's wait. Only what must go is kept.
    let bound = Accounts {
        queue: queue.clone(),
        tasks: tasks.clone(),
        syncs,
    };
    let (accounts, legacy) = (bound.clone(), stores.legacy.clone());
    for_each(
        Api::<RoleBinding>::all(client.clone()),
        start.gate("RoleBindings"),
        move |binding: &RoleBinding, change| {
            legacy.observe(binding, change == Change::Gone);
            accounts.named(binding.subjects.as_deref(), binding.is_legacy(), change);
        },
        start.running,
    );
    let (accounts, legacy) = (bound, stores.legacy.clone());
    for_each(
        Api::<ClusterRoleBinding>::all(client.clone()),
        start.gate("ClusterRoleBindings"),
        move |binding: &ClusterRoleBinding, change| {
            legacy.observe_cluster(binding, change == Change::Gone);
            accounts.named(binding.subjects.as_deref(), binding.is_legacy(), change);
        },
        start.running,
    );
    stores
}

/// The reconcilers that a binding is about.
#[derive(Clone)]
struct Accounts {
    queue: Queue<SyncId>,
    tasks: Tasks,
    syncs: Syncs,
}

impl Accounts {
    fn named(&self, subjects: Option<&[Subject]>, legacy: bool, change: Change) {
        for subject in subjects.into_iter().flatten() {
            if subject.kind != "ServiceAccount" || subject.namespace.as_deref() != Some(SYSTEM_NAMESPACE) {
                continue;
            }
            if change != Change::Listed {
                self.tasks.poke_account(&subject.name);
            }
            if legacy {
                for id in read(&self.syncs)
                    .keys()
                    .filter(|id| names::reconciler(id) == subject.name)
                {
                    self.queue.add(id.clone());
                }
            }
        }
    }
}

/// How something came to be seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Listed,
    Made,
    Gone,
}

fn for_each<K>(
    api: Api<K>,
    gate: Gate,
    mut changed: impl FnMut(&K, Change) + Send + 'static,
    running: &mut JoinSet<()>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default + Clone,
{
    let events = watcher(api, watcher::Config::default()).default_backoff();
    running.spawn(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::InitApply(object)) => changed(&object, Change::Listed),
                Ok(Event::Apply(object)) => changed(&object, Change::Made),
                Ok(Event::Delete(object)) => changed(&object, Change::Gone),
                Ok(Event::InitDone) => gate.open(),
                Ok(Event::Init) | Err(_) => {}
            }
        }
    });
}

/// Whether the API server does not know the kind.
fn unserved(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

struct Start<'a> {
    client: &'a Client,
    health: &'a Health,
    running: &'a mut JoinSet<()>,
}

impl Start<'_> {
    fn gate(&self, name: &str) -> Gate {
        self.health.gate(format!("watch {name}"))
    }

    fn syncs(&mut self, kind: SyncKind, queue: &Queue<SyncId>, syncs: &Syncs) {
        let resource = kind.resource();
        let api = Api::all_with(self.client.clone(), &resource);
        let (queue, syncs) = (queue.clone(), syncs.clone());
        let name = format!("{}s", kind.as_str());
        let config = watcher::Config::default();
        self.watch(
            watcher(api, config),
            resource,
            &name,
            move |object: &DynamicObject, gone| {
                let Some(sync) = Sync::read(kind, object) else {
                    return;
                };
                let id = sync.id.clone();
                let mut syncs = syncs.write().unwrap_or_else(PoisonError::into_inner);
                if gone {
                    syncs.remove(&id);
                } else {
                    syncs.insert(id.clone(), Arc::new(sync));
                }
                // One that has the same account may get it now.
                let account = names::reconciler(&id);
                for other in syncs
                    .keys()
                    .filter(|other| gone && names::reconciler(other) == account)
                {
                    queue.add(other.clone());
                }
                drop(syncs);
                queue.add(id);
            },
        );
    }

    /// The metadata of all objects of a kind.
    fn names<K>(
        &mut self,
        name: &str,
        mut changed: impl FnMut(&PartialObjectMeta<K>) + Send + 'static,
    ) -> Store<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + std::marker::Sync + 'static,
    {
        let events = watcher(Api::all(self.client.clone()), watcher::Config::default());
        self.watch(events, (), name, move |object, _| changed(object))
    }

    /// Objects made for syncs. A label that somebody changed leads to both the old and the new sync. Guarded: whoever
    /// may write an inventory in one namespace must not stop the syncs of the others.
    fn owned<K>(
        &mut self,
        api: Api<Guarded<K>>,
        config: watcher::Config,
        name: &str,
        queue: &Queue<SyncId>,
    ) -> Store<K>
    where
        K: Resource<DynamicType = ()>
            + Clone
            + Debug
            + Default
            + DeserializeOwned
            + Send
            + std::marker::Sync
            + 'static,
    {
        let queue = queue.clone();
        let mut known: HashMap<(Option<String>, String), SyncId> = HashMap::new();
        self.watch(guarded(api, config), (), name, move |object: &K, _| {
            let key = (object.namespace(), object.name_any());
            let now = names::id_of(object.labels());
            let before = match &now {
                Some(id) => known.insert(key, id.clone()),
                None => known.remove(&key),
            };
            for id in [before, now].into_iter().flatten() {
                queue.add(id);
            }
        })
    }

    fn watch<K>(
        &mut self,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        kind: K::DynamicType,
        name: &str,
        mut changed: impl FnMut(&K, bool) + Send + 'static,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + std::marker::Sync + 'static,
        K::DynamicType: Eq + Hash + Clone + Send + std::marker::Sync,
    {
        let gate = self.gate(name);
        let name = name.to_owned();
        let mut writer: Writer<K> = Writer::new(kind);
        let store = writer.as_reader();
        let events = events.default_backoff();
        self.running.spawn(async move {
            let mut events = std::pin::pin!(events);
            let mut gone: HashMap<ObjectRefKey, Arc<K>> = HashMap::new();
            let mut said: Option<String> = None;
            while let Some(event) = events.next().await {
                let mut event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        let text = error.to_string();
                        // Once: it tries on, and hears the same for as long as nobody does anything.
                        if said.as_ref() != Some(&text) {
                            let advice = if unserved(&error) { INSTALL } else { "" };
                            tracing::warn!(watch = %name, %error, advice, "the watch failed, will try again");
                            said = Some(text);
                        }
                        continue;
                    }
                };
                match &mut event {
                    Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
                        object.managed_fields_mut().clear();
                    }
                    Event::Init | Event::InitDone => {}
                }
                // What vanished while the watch was away is only known by comparing.
                if matches!(event, Event::Init) {
                    gone = writer
                        .as_reader()
                        .state()
                        .into_iter()
                        .map(|object| ((object.namespace(), object.name_any()), object))
                        .collect();
                }
                if let Event::InitApply(object) = &event {
                    gone.remove(&(object.namespace(), object.name_any()));
                }
                writer.apply_watcher_event(&event);
                match &event {
                    Event::Apply(object) | Event::InitApply(object) => changed(object, false),
                    Event::Delete(object) => changed(object, true),
                    Event::InitDone => {
                        for (_, object) in gone.drain() {
                            changed(&object, true);
                        }
                        said = None;
                        gate.open();
                    }
                    Event::Init => {}
                }
            }
        });
        store
    }
}

type ObjectRefKey = (Option<String>, String);
