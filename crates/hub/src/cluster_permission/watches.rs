//! The watches: one per kind over all namespaces, and which permissions each change concerns.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::{self, Debug},
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{Stream, StreamExt as _, stream::BoxStream};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, Role},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher::{self, Event},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Notify;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::ManagedCluster,
    rbac::ClusterPermission,
    work::{ManifestWork, ManifestWorkSpec},
};
use writ_controller::{queue::Queue, tolerant::guarded};

use super::{
    model::NotSynced,
    naming,
    packed::Packed,
    spec::{
        references::{account_names, object_hashes, uses_selector},
        validate::filled,
    },
};
use crate::Context;

/// Which permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace, which is its cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Something that the answer for a permission depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Dependency {
    /// The cluster, its accounts and its add-on: by namespace.
    Cluster(String),
    /// A role of the hub: namespace (empty for a ClusterRole) and name.
    Role(String, String),
    /// The labels of the hub's namespaces.
    Namespaces,
}

/// Which permissions depend on what.
#[derive(Debug, Default)]
struct Index {
    dependents: HashMap<Dependency, HashSet<Key>>,
    of: HashMap<Key, Vec<Dependency>>,
}

impl Index {
    fn set(&mut self, key: &Key, dependencies: Vec<Dependency>) {
        for old in self.of.remove(key).unwrap_or_default() {
            if let Some(keys) = self.dependents.get_mut(&old) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(&old);
                }
            }
        }
        for dependency in &dependencies {
            self.dependents
                .entry(dependency.clone())
                .or_default()
                .insert(key.clone());
        }
        if !dependencies.is_empty() {
            self.of.insert(key.clone(), dependencies);
        }
    }
}

/// The caches of everything that is watched.
pub struct Watches {
    pub(super) permissions: Packed<ClusterPermission>,
    pub(super) works: Packed<ManifestWork>,
    pub(super) clusters: Store<ManagedCluster>,
    pub(super) accounts: Store<ManagedServiceAccount>,
    pub(super) add_ons: Store<ManagedClusterAddOn>,
    pub(super) roles: Store<Role>,
    pub(super) cluster_roles: Store<ClusterRole>,
    namespaces: Store<Namespace>,
    /// The uids of permissions that were seen to end and have not been looked at since.
    ended: Arc<Mutex<HashMap<Key, String>>>,
    ready: Readiness,
}

/// Which watches have shown everything there is.
#[derive(Clone, Default)]
struct Readiness {
    flags: Arc<Mutex<HashMap<&'static str, Arc<AtomicBool>>>>,
    changed: Arc<Notify>,
}

impl Readiness {
    fn is(&self, kind: &str) -> bool {
        let flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        flags.get(kind).is_some_and(|flag| flag.load(Ordering::Acquire))
    }
}

/// How many objects are read at a time.
const PAGE: u32 = 100;

const PERMISSIONS: &str = "ClusterPermissions";
const WORKS: &str = "ManifestWorks";
const CLUSTERS: &str = "ManagedClusters";
const ACCOUNTS: &str = "ManagedServiceAccounts";
const ADD_ONS: &str = "ManagedClusterAddOns";
const ROLES: &str = "Roles";
const CLUSTER_ROLES: &str = "ClusterRoles";
const NAMESPACES: &str = "Namespaces";

impl Watches {
    /// Starts every watch; each change puts the permissions that it concerns into the queue.
    pub fn start(context: &Context, queue: &Queue<Key>) -> Self {
        let index = Arc::new(Mutex::new(Index::default()));
        let permissions = Packed::new(
            |_: &ClusterPermission| None,
            |p| object_hashes(p).into_iter().collect(),
        );
        let starter = Starter {
            context,
            queue,
            index: index.clone(),
            permissions: permissions.clone(),
            ready: Readiness::default(),
        };
        let cluster = |namespace: Option<String>| Dependency::Cluster(namespace.unwrap_or_default());
        let own_index = index.clone();
        let ended: Arc<Mutex<HashMap<Key, String>>> = Arc::default();
        let ends = ended.clone();
        starter.follow_packed(
            PERMISSIONS,
            &permissions,
            |_: &mut ClusterPermission| {},
            move |permission, gone| {
                let key = key_of(permission);
                let dependencies = if gone {
                    lock(&ends).extend(permission.uid().map(|uid| (key.clone(), uid)));
                    Vec::new()
                } else {
                    lock(&ends).remove(&key);
                    dependencies(permission)
                };
                lock(&own_index).set(&key, dependencies);
                Concerned::Keys(vec![key])
            },
        );
        let works = Packed::new(owner, |_| Box::default());
        starter.follow_packed(WORKS, &works, prune_work, |work, _| owners(work));
        let clusters = starter.follow(
            CLUSTERS,
            |_: &mut ManagedCluster| {},
            move |c, _| Concerned::Dependents(cluster(Some(c.name_any()))),
        );
        let accounts = starter.follow(
            ACCOUNTS,
            |_: &mut ManagedServiceAccount| {},
            move |a, _| Concerned::Dependents(cluster(a.namespace())),
        );
        let add_ons = starter.follow(
            ADD_ONS,
            |_: &mut ManagedClusterAddOn| {},
            move |a, _| Concerned::Dependents(cluster(a.namespace())),
        );
        let roles = starter.follow(
            ROLES,
            |_: &mut Role| {},
            |role, _| {
                Concerned::Dependents(Dependency::Role(
                    role.namespace().unwrap_or_default(),
                    role.name_any(),
                ))
            },
        );
        let cluster_roles = starter.follow(
            CLUSTER_ROLES,
            |_: &mut ClusterRole| {},
            |role, _| Concerned::Dependents(Dependency::Role(String::new(), role.name_any())),
        );
        let namespaces = starter.follow(
            NAMESPACES,
            |_: &mut Namespace| {},
            |_, _| Concerned::Dependents(Dependency::Namespaces),
        );
        Self {
            permissions,
            works,
            clusters,
            accounts,
            add_ons,
            roles,
            cluster_roles,
            namespaces,
            ended,
            ready: starter.ready,
        }
    }

    /// Waits until permissions, works and clusters are known.
    pub async fn ready(&self) {
        loop {
            let changed = self.ready.changed.notified();
            if [PERMISSIONS, WORKS, CLUSTERS]
                .iter()
                .all(|kind| self.ready.is(kind))
            {
                return;
            }
            changed.await;
        }
    }

    /// What of that which this permission names has not been read. Nothing may be revoked for its absence.
    pub fn not_synced(&self, permission: &ClusterPermission, by_agent: bool) -> NotSynced {
        let accounts = !account_names(permission).is_empty();
        let roles = !permission.spec.role_refs.is_empty();
        let namespaces = !by_agent && uses_selector(permission);
        NotSynced {
            accounts: accounts && !(self.ready.is(ACCOUNTS) && self.ready.is(ADD_ONS)),
            roles: roles && !(self.ready.is(ROLES) && self.ready.is(CLUSTER_ROLES)),
            namespaces: namespaces && !self.ready.is(NAMESPACES),
        }
    }

    /// The hub's namespaces that are not going, with their labels, in order; `None` if they have not been read.
    pub fn namespaces(&self) -> Option<Vec<(String, BTreeMap<String, String>)>> {
        if !self.ready.is(NAMESPACES) {
            return None;
        }
        let all = self.namespaces.state();
        let stay = all.iter().filter(|ns| ns.metadata.deletion_timestamp.is_none());
        let mut all: Vec<_> = stay.map(|ns| (ns.name_any(), ns.labels().clone())).collect();
        all.sort();
        Some(all)
    }

    /// The works that a permission of this name owns.
    pub fn works_of(&self, key: &Key) -> Vec<ManifestWork> {
        self.works.owned(&key.namespace, &key.name, |_| true)
    }

    /// Whether there are works of an earlier permission of this name.
    pub fn has_former_works(&self, key: &Key, permission: &ClusterPermission) -> bool {
        let uid = permission.metadata.uid.as_ref();
        let works = self.works_of(key);
        works
            .iter()
            .any(|work| owner_of(work).map(|owner| &owner.uid) != uid)
    }

    /// The uid of the permission of this name that was seen to end; it is told once.
    pub fn ended(&self, key: &Key) -> Option<String> {
        lock(&self.ended).remove(key)
    }
}

/// Which permissions a change concerns.
enum Concerned {
    Keys(Vec<Key>),
    /// Those of them that exist.
    Perhaps(Vec<Key>),
    Dependents(Dependency),
}

struct Starter<'a> {
    context: &'a Context,
    queue: &'a Queue<Key>,
    index: Arc<Mutex<Index>>,
    permissions: Packed<ClusterPermission>,
    ready: Readiness,
}

impl Starter<'_> {
    /// Follows a kind of which there are few, or whose objects are small.
    fn follow<K>(
        &self,
        what: &'static str,
        prune: impl Fn(&mut K) + Send + 'static,
        concerned: impl Fn(&K, bool) -> Concerned + Send + 'static,
    ) -> Store<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Default + Send + Sync + 'static,
        K::DynamicType: Default + Clone + Eq + Hash + Debug + Send + Sync,
    {
        let (store, writer) = reflector::store::<K>();
        let stream = reflector::reflector(writer, self.events(prune)).default_backoff();
        self.spawn(what, stream, |_| Vec::new(), concerned);
        store
    }

    /// Follows a kind of which there are many.
    fn follow_packed<K>(
        &self,
        what: &'static str,
        store: &Packed<K>,
        prune: impl Fn(&mut K) + Send + 'static,
        concerned: impl Fn(&K, bool) -> Concerned + Send + 'static,
    ) where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Default + Send + Sync + 'static,
        K::DynamicType: Default + Clone + Eq + Hash + Debug + Send + Sync,
    {
        let sink = store.clone();
        let stream = self.events(prune).default_backoff();
        self.spawn(what, stream, move |event| sink.take(event), concerned);
    }

    fn events<K>(
        &self,
        prune: impl Fn(&mut K) + Send + 'static,
    ) -> BoxStream<'static, watcher::Result<Event<K>>>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Default + Send + Sync + 'static,
        K::DynamicType: Default + Clone + Eq + Hash + Debug + Send + Sync,
    {
        let api = Api::all(self.context.client.clone());
        // A page is read as a whole, and all kinds are read at once.
        guarded(api, watcher::Config::default().page_size(PAGE))
            .modify(move |object: &mut K| {
                object.meta_mut().managed_fields = None;
                prune(object);
            })
            .boxed()
    }

    fn spawn<K: Send + Sync + 'static>(
        &self,
        what: &'static str,
        stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
        take: impl Fn(&Event<K>) -> Vec<Key> + Send + 'static,
        concerned: impl Fn(&K, bool) -> Concerned + Send + 'static,
    ) {
        let flag = Arc::new(AtomicBool::new(false));
        lock(&self.ready.flags).insert(what, flag.clone());
        let changed = self.ready.changed.clone();
        let gate = self
            .context
            .health
            .gate(format!("cluster_permission: watch {what}"));
        let (queue, index, permissions) = (self.queue.clone(), self.index.clone(), self.permissions.clone());
        let shutdown = self.context.shutdown.clone();
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            loop {
                let event = tokio::select! {
                    () = shutdown.cancelled() => return,
                    event = stream.next() => event,
                };
                if let Some(Ok(event)) = &event {
                    add_all(&queue, take(event));
                }
                let (object, gone) = match event {
                    None => return,
                    Some(Err(error)) => {
                        tracing::warn!(%error, "the watch of {what} was interrupted");
                        continue;
                    }
                    Some(Ok(Event::Init)) => continue,
                    Some(Ok(Event::InitDone)) => {
                        flag.store(true, Ordering::Release);
                        gate.open();
                        changed.notify_waiters();
                        // What vanished while nobody watched sends no event of its own.
                        let keys: Vec<Key> = lock(&index).of.keys().cloned().collect();
                        add_all(&queue, keys);
                        continue;
                    }
                    Some(Ok(Event::Apply(object) | Event::InitApply(object))) => (object, false),
                    Some(Ok(Event::Delete(object))) => (object, true),
                };
                match concerned(&object, gone) {
                    Concerned::Keys(keys) => add_all(&queue, keys),
                    Concerned::Perhaps(mut keys) => {
                        keys.retain(|key| lock(&index).of.contains_key(key));
                        add_all(&queue, keys);
                    }
                    Concerned::Dependents(dependency) => {
                        let keys = lock(&index)
                            .dependents
                            .get(&dependency)
                            .cloned()
                            .unwrap_or_default();
                        for key in &keys {
                            add_all(&queue, permissions.neighbours(key));
                        }
                        add_all(&queue, keys);
                    }
                }
            }
        });
    }
}

fn add_all(queue: &Queue<Key>, keys: impl IntoIterator<Item = Key>) {
    for key in keys {
        queue.add(key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(permission: &ClusterPermission) -> Key {
    Key {
        namespace: permission.namespace().unwrap_or_default(),
        name: permission.name_any(),
    }
}

fn dependencies(permission: &ClusterPermission) -> Vec<Dependency> {
    let mut all = vec![Dependency::Cluster(permission.namespace().unwrap_or_default())];
    for role in &permission.spec.role_refs {
        let namespace = filled(role.namespace.as_deref()).unwrap_or_default();
        all.push(Dependency::Role(namespace.into(), role.name.clone()));
    }
    if uses_selector(permission) {
        all.push(Dependency::Namespaces);
    }
    all
}

/// The permission that owns a work.
pub(super) fn owner_of(work: &ManifestWork) -> Option<&OwnerReference> {
    work.owner_references().iter().find(|o| {
        o.kind == "ClusterPermission" && o.api_version.starts_with("rbac.open-cluster-management.io/")
    })
}

fn owner(work: &ManifestWork) -> Option<&String> {
    owner_of(work).map(|owner| &owner.name)
}

/// The permissions that a work can belong to: its owner, or by its name if somebody took the owner away.
fn owners(work: &ManifestWork) -> Concerned {
    let key = |name: &str| Key {
        namespace: work.namespace().unwrap_or_default(),
        name: name.into(),
    };
    match owner(work) {
        Some(name) => Concerned::Keys(vec![key(name)]),
        None => Concerned::Perhaps(naming::permissions_of_work(&work.name_any()).map(key).collect()),
    }
}

/// Works of others are many and large; only their names matter here.
fn prune_work(work: &mut ManifestWork) {
    if owner(work).is_none() {
        work.spec = ManifestWorkSpec::default();
        work.status = None;
    }
}
