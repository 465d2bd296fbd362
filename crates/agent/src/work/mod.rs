//! Delivers ManifestWorks: what a work on the hub names becomes true on the managed cluster, and stays true.
//!
//! * One watch on the hub, for the works of this cluster. What was applied stays applied while the hub is away.
//! * Every object names the work's AppliedManifestWork as an owner; it is deleted with the last of its works.
//! * Manifests are applied in the order of their kinds' ranks, side by side within a rank.
//! * Drift is noticed by metadata-only watches on the kinds that were applied, and repaired at once.
//! * A work with an executor is written only if the executor may hold every object: see [`executor`].
//! * One writer per status, and only differences are written: an unchanged work costs no request.

mod applied;
pub(crate) mod apply;
mod cache;
mod config;
mod content;
mod create;
mod delete;
pub mod executor;
mod ignore;
mod left;
mod mapper;
mod mirror;
mod objects;
pub mod options;
mod pass;
mod plan;
mod rank;
mod read;
mod reconcile;
mod records;
mod replace;
mod room;
mod settle;
mod status;
mod strangers;
mod takeover;
mod unseen;
mod untyped;
mod unwritten;
mod watch;
mod words;

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, GroupVersionKind},
};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use writ_api::work::{AppliedManifestWork, AppliedResource, ManifestWork};
use writ_controller::{
    Error,
    queue::{Next, Queue},
};

use self::{
    cache::Cache,
    executor::Gate,
    left::Left,
    mapper::{Kind, Mapper},
    mirror::{Change, follow},
    objects::{Name, Objects},
    pass::{TURNS, Wait},
    plan::{Item, Target},
    strangers::awaited_roles,
    unseen::Unseen,
    watch::Watches,
};
use crate::{Context, Options, RecreateLock};

/// How many works are looked at side by side.
const WORKERS: usize = 10;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// What the queue is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A ManifestWork, by name.
    Work(Arc<str>),
    /// An AppliedManifestWork, by name.
    Applied(Arc<str>),
    /// What the agent may watch.
    Rights,
}

impl Key {
    fn work(name: &str) -> Self {
        Self::Work(name.into())
    }

    fn applied(name: &str) -> Self {
        Self::Applied(name.into())
    }
}

/// Everything that the reconciles of one agent share.
pub(crate) struct Agent {
    hub: Client,
    spoke: Client,
    options: Arc<Options>,
    hub_hash: String,
    id: String,
    works: Cache<ManifestWork>,
    unseen: Unseen,
    applied: Cache<AppliedManifestWork>,
    mapper: Mapper,
    objects: Objects,
    watches: Watches,
    gate: Gate,
    queue: Queue<Key>,
    /// The works that cannot be understood, each with the generation whose status says so.
    broken: Mutex<HashMap<String, i64>>,
    left: Left,
    waiting: Mutex<HashMap<Key, HashSet<Wait>>>,
    hub_listed: AtomicBool,
    applied_listed: AtomicBool,
    well_known: WellKnown,
    /// Whose turn it is to write an object.
    turns: Semaphore,
    recreate_lock: RecreateLock,
}

/// Kinds that others wait for.
struct WellKnown {
    namespaces: Arc<Kind>,
    definitions: Arc<Kind>,
    rbac: [Arc<Kind>; 4],
}

impl Default for WellKnown {
    fn default() -> Self {
        let kind = |group: &str, kind: &str, plural: &str| {
            Arc::new(Kind {
                resource: ApiResource::from_gvk_with_plural(
                    &GroupVersionKind::gvk(group, "v1", kind),
                    plural,
                ),
                namespaced: matches!(kind, "Role" | "RoleBinding"),
            })
        };
        Self {
            namespaces: kind("", "Namespace", "namespaces"),
            definitions: kind(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "customresourcedefinitions",
            ),
            rbac: [
                kind(RBAC_GROUP, "Role", "roles"),
                kind(RBAC_GROUP, "RoleBinding", "rolebindings"),
                kind(RBAC_GROUP, "ClusterRole", "clusterroles"),
                kind(RBAC_GROUP, "ClusterRoleBinding", "clusterrolebindings"),
            ],
        }
    }
}

/// Delivers works until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let works_gate = context.health.gate("watch ManifestWorks");
    let applied_gate = context.health.gate("watch AppliedManifestWorks");
    let agent = Arc::new(Agent::new(&context));

    let applied_watch = {
        let agent = agent.clone();
        let api: Api<AppliedManifestWork> = Api::all(context.spoke.clone());
        async move {
            follow(api, &agent.applied, |event| match event {
                Change::Put(applied) => agent.queue.add(Key::applied(&applied.name_any())),
                Change::Gone(name) => {
                    agent.queue.add(Key::applied(&name));
                    // The name is the hub's hash, a dash, and the name of the work.
                    if let Some((_, work)) = name.split_once('-') {
                        agent.queue.add(Key::work(work));
                    }
                }
                Change::Broken(name, error) => {
                    tracing::error!(name, error, "an AppliedManifestWork cannot be understood");
                }
                Change::Listed => {
                    agent.applied_listed.store(true, Ordering::SeqCst);
                    // A work that is on its way out waits to know what was applied.
                    for name in agent.works.names() {
                        agent.queue.add(Key::work(&name));
                    }
                    applied_gate.open();
                }
            })
            .await;
        }
    };
    let works_watch = {
        let agent = agent.clone();
        let api: Api<ManifestWork> = agent.hub_works();
        async move {
            follow(api, &agent.works, |event| match event {
                Change::Put(work) => agent.changed(&work.name_any()),
                Change::Broken(name, _) | Change::Gone(name) => agent.changed(&name),
                Change::Listed => {
                    agent.hub_listed.store(true, Ordering::SeqCst);
                    for name in agent.applied.names() {
                        agent.queue.add(Key::applied(&name));
                    }
                    works_gate.open();
                }
            })
            .await;
        }
    };
    let meter = context.health.meter("work");
    let serve = agent.queue.run(WORKERS, &context.shutdown, &meter, |key| {
        let agent = agent.clone();
        async move { agent.look(key).await }
    });
    let gate = agent.gate.run(&context.shutdown);
    tokio::select! {
        () = context.shutdown.cancelled() => {}
        () = async { futures::join!(applied_watch, works_watch, serve, gate); } => {}
    }
    Ok(())
}

impl Agent {
    fn new(context: &Context) -> Self {
        let options = context.options.clone();
        let hub_hash = hub_hash(&options.work.hub_server);
        let id = options.work.agent_id.clone().unwrap_or_else(|| hub_hash.clone());
        let objects = Objects::default();
        let queue = Queue::default();
        let well_known = WellKnown::default();
        let looks = options.work.status_sync_interval.unwrap_or(watch::LOOKS);
        let watches = Watches::new(
            context.spoke.clone(),
            objects.clone(),
            queue.clone(),
            looks.max(watch::MIN_LOOKS),
            well_known.rbac.to_vec(),
        );
        Self {
            hub: context.hub.clone(),
            spoke: context.spoke.clone(),
            hub_hash,
            id,
            works: Cache::default(),
            unseen: Unseen::default(),
            applied: Cache::default(),
            mapper: Mapper::new(context.spoke.clone()),
            watches,
            objects,
            gate: Gate::new(context.spoke.clone(), &options, queue.clone()),
            queue,
            broken: Mutex::default(),
            left: Left::default(),
            waiting: Mutex::default(),
            hub_listed: AtomicBool::new(false),
            applied_listed: AtomicBool::new(false),
            well_known,
            turns: Semaphore::new(TURNS),
            recreate_lock: context.recreate_lock.clone(),
            options,
        }
    }

    /// The works of this cluster.
    fn hub_works(&self) -> Api<ManifestWork> {
        Api::namespaced(self.hub.clone(), &self.options.cluster_name)
    }

    fn applied_name(&self, work: &str) -> String {
        format!("{}-{work}", self.hub_hash)
    }

    fn hub_listed(&self) -> bool {
        self.hub_listed.load(Ordering::SeqCst)
    }

    async fn look(&self, key: Key) -> Next {
        let looked = match &key {
            Key::Work(name) => self.reconcile_work(name).await,
            Key::Applied(name) => self.reconcile_applied(name).await,
            Key::Rights => {
                self.watches.try_again();
                Ok(Next::Wait)
            }
        };
        looked.unwrap_or_else(|error| {
            tracing::warn!(?key, %error, "could not finish, will try again");
            Next::Retry
        })
    }

    /// A work came, changed or went: earlier failures say nothing about it any more.
    fn changed(&self, work: &str) {
        for key in [Key::work(work), Key::applied(&self.applied_name(work))] {
            self.queue.forgive(&key);
            self.queue.add(key);
        }
    }

    /// Whether the status of a work that cannot be understood says so for this generation.
    fn says_broken(&self, work: &str, generation: Option<i64>) -> bool {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        generation.is_some() && broken.get(work).copied() == generation
    }

    /// Remembers for which generation a work says that it cannot be understood; `None` if it can.
    fn set_broken(&self, work: &str, generation: Option<i64>) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        match generation {
            Some(generation) => broken.insert(work.to_owned(), generation),
            None => broken.remove(work),
        };
    }

    /// Remembers what a work waits for.
    fn waits(&self, key: &Key, waits: HashSet<Wait>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.is_empty() {
            waiting.remove(key);
        } else {
            waiting.insert(key.clone(), waits);
        }
    }

    /// Watches what a work applies, what goes with it, and what it waits for.
    async fn declare_interest(&self, key: &Key, items: &[Item], going: &[AppliedResource]) {
        let going = self.served(going).await;
        let mut wanted: Vec<(Arc<Kind>, Name)> = items
            .iter()
            .filter_map(|item| item.target.as_ref().ok())
            .map(|target| (target, target.place()))
            // A kind that comes with this very work is watched once it is served.
            .filter(|(target, name)| !target.kind_to_come || self.objects.knows(&target.kind.resource, name))
            .map(|(target, name)| (target.kind.clone(), name))
            .chain(going)
            .collect();
        let [roles, _, cluster_roles, _] = &self.well_known.rbac;
        wanted.extend(awaited_roles(items).into_iter().map(|(kind, namespace, name)| {
            let kind = if kind == writ_authz::Kind::Role {
                roles
            } else {
                cluster_roles
            };
            (kind.clone(), (namespace.into(), name.into()))
        }));
        let mut any = Vec::new();
        {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for wait in waiting.get(key).into_iter().flatten() {
                match wait {
                    Wait::Namespace(name) => {
                        wanted.push((
                            self.well_known.namespaces.clone(),
                            ("".into(), name.as_str().into()),
                        ));
                    }
                    Wait::Kind => any.push(self.well_known.definitions.clone()),
                    Wait::Permission => any.extend(self.well_known.rbac.iter().cloned()),
                }
            }
        }
        if self.objects.interest(key, &wanted, &any) {
            self.watches.refresh();
        }
    }

    /// Kind and name of each of these objects; of a kind that is not served there are none. What cannot be found out now
    /// is asked about later and later, and keeps nobody.
    async fn served(&self, resources: &[AppliedResource]) -> Vec<(Arc<Kind>, Name)> {
        let mut served = Vec::new();
        for resource in resources {
            let kind = self.recorded_kind(resource).await.ok().flatten();
            let name: Name = (resource.namespace.as_str().into(), resource.name.as_str().into());
            served.extend(kind.map(|kind| (kind, name)));
        }
        served
    }

    /// The kind of a recorded object; `None` if there can be no such object.
    async fn recorded_kind(&self, resource: &AppliedResource) -> Result<Option<Arc<Kind>>, Error> {
        if !plan::can_exist(resource) {
            tracing::warn!(
                ?resource,
                "a record names what cannot be an object, it is ignored"
            );
            return Ok(None);
        }
        let kind = self
            .mapper
            .find_resource(&resource.group, &resource.version, &resource.resource)
            .await?;
        Ok(kind.filter(|kind| !kind.namespaced || !resource.namespace.is_empty()))
    }

    /// Watches an object whose kind was not served when the pass began.
    fn declare_served(&self, key: &Key, target: &Target) {
        if self.objects.also(key, &target.kind, target.place()) {
            self.watches.refresh();
        }
    }

    fn forget(&self, key: &Key) {
        self.queue.forgive(key);
        self.waits(key, HashSet::new());
        self.gate.forget(key);
        if self.objects.interest(key, &[], &[]) {
            self.watches.refresh();
        }
    }
}

/// The SHA-256 of the hub's address, exactly as the kubeconfig spells it.
pub(crate) fn hub_hash(server: &str) -> String {
    hex(&Sha256::digest(server.as_bytes()))
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
