//! Watches everything that can change the answer, and works on what an event may have changed.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::{Duration, Instant},
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    certificates::v1::CertificateSigningRequest,
    core::v1::{ObjectReference, Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use writ_api::{
    addon::{LABEL_ADDON, ManagedClusterAddOn},
    authentication::{
        ANNOTATION_PARENT, ANNOTATION_TOKEN_REQUEST, LABEL_MANAGED, ManagedServiceAccount, digest,
    },
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding},
    proxy,
    work::ManifestWork,
};
use writ_controller::{Error, backoff::Backoff, events::Events, schedule::Schedule};

use super::{
    clusters,
    foreign_secrets::Strangers,
    mirror::{Id, Mirror},
    model::{ADDON, ADDON_ACCOUNT, AGENT_ROLE, POLICY, SeenSecret},
    plan::credential_request,
    reconcile::Worker,
};
use crate::{Context, upsert::will_try_again};

/// How many things are worked on side by side.
const CONCURRENCY: usize = 16;

/// What is worked on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The admission policy.
    Policy,
    /// A cluster: its add-on and its agent's rights.
    Cluster(String),
    /// A request for a credential.
    Request(String),
    /// An account of the older group.
    Owner(Id),
    /// An account.
    Account(Id),
}

/// Everything that is watched.
#[derive(Default)]
pub struct World {
    /// Accounts.
    pub accounts: Mirror<ManagedServiceAccount>,
    /// Accounts of the older group.
    pub owners: Mirror<proxy::ManagedServiceAccount>,
    /// Clusters.
    pub clusters: Mirror<ManagedCluster>,
    /// Sets of clusters.
    pub sets: Mirror<ManagedClusterSet>,
    /// Namespaces bound to sets.
    pub bindings: Mirror<ManagedClusterSetBinding>,
    /// The add-on on each cluster.
    pub addons: Mirror<ManagedClusterAddOn>,
    /// What delivers the add-on.
    pub works: Mirror<ManifestWork>,
    /// The accounts' Secrets, without what is secret.
    pub secrets: Mirror<SeenSecret>,
    /// Of an account's Secret that went: at which version. Two that went one after the other are two.
    pub went: BTreeMap<Id, String>,
    /// Requests for credentials.
    pub requests: Mirror<CertificateSigningRequest>,
    /// The policy.
    pub policies: Mirror<ValidatingAdmissionPolicy>,
    /// Its binding.
    pub policy_bindings: Mirror<ValidatingAdmissionPolicyBinding>,
    /// The agents' roles.
    pub roles: Mirror<Role>,
    /// Their bindings.
    pub role_bindings: Mirror<RoleBinding>,
    /// The accounts of add-on agents, where the token driver is used.
    pub identities: Mirror<ServiceAccount>,
}

impl World {
    fn is_ready(&self) -> bool {
        self.accounts.is_ready()
            && self.owners.is_ready()
            && self.clusters.is_ready()
            && self.sets.is_ready()
            && self.bindings.is_ready()
            && self.addons.is_ready()
            && self.works.is_ready()
            && self.secrets.is_ready()
            && self.requests.is_ready()
            && self.policies.is_ready()
            && self.policy_bindings.is_ready()
            && self.roles.is_ready()
            && self.role_bindings.is_ready()
            && self.identities.is_ready()
    }

    /// The accounts outside of cluster namespaces: those that may have children.
    fn parents(&self) -> impl Iterator<Item = &Id> {
        self.accounts
            .iter()
            .map(|(id, _)| id)
            .filter(|(namespace, _)| !clusters::is_clusters(namespace, &self.clusters))
    }

    /// What a changed cluster may have changed: itself, every account that may have children, and those in the namespace
    /// of its name, which may have become a cluster's or have been one.
    fn cluster_changed(&self, names: Vec<String>) -> Vec<Key> {
        let mut keys: Vec<Key> = self.parents().map(|id| Key::Account(id.clone())).collect();
        for name in names {
            let within = self.accounts.within(&name);
            keys.extend(within.map(|(account, _)| Key::Account((name.clone(), account.to_owned()))));
            keys.push(Key::Cluster(name));
        }
        keys
    }

    /// The policy, and the clusters whose agents have no rights without it.
    fn policy_changed(&self) -> Vec<Key> {
        let clusters = self
            .clusters
            .iter()
            .map(|((_, name), _)| Key::Cluster(name.clone()));
        std::iter::once(Key::Policy).chain(clusters).collect()
    }

    /// The object that a key is about, where a person would look for it.
    fn about(&self, key: &Key) -> Option<ObjectReference> {
        match key {
            Key::Account((namespace, name)) => Some(self.accounts.get(namespace, name)?.object_ref(&())),
            Key::Owner((namespace, name)) => Some(self.owners.get(namespace, name)?.object_ref(&())),
            Key::Cluster(name) => Some(self.clusters.get("", name)?.object_ref(&())),
            Key::Policy | Key::Request(_) => None,
        }
    }

    /// Whether somebody on that cluster has asked for the add-on's credential.
    pub fn has_requested(&self, cluster: &str) -> bool {
        self.requests.iter().any(|(_, request)| {
            request.labels().get(CLUSTER_NAME_LABEL).map(String::as_str) == Some(cluster)
                && credential_request::approvable_cluster(request).is_ok()
        })
    }

    /// Accounts of that name in namespaces that are no cluster's: it may now be their turn.
    fn namesakes(&self, name: &str) -> Vec<Key> {
        self.accounts
            .named(name)
            .filter(|(namespace, _)| !clusters::is_clusters(namespace, &self.clusters))
            .map(|(namespace, _)| Key::Account((namespace.to_owned(), name.to_owned())))
            .collect()
    }
}

/// Takes one event in and says what to work on.
type Change = Box<dyn FnOnce(&mut World) -> Vec<Key> + Send>;

/// Work on one thing: it ends with when to come back, if by itself.
type Work = BoxFuture<'static, (Key, Result<Option<Timestamp>, Error>)>;

/// The world, shared with those who work.
pub type Shared = Arc<RwLock<World>>;

/// Reads the world.
pub fn read(world: &Shared) -> RwLockReadGuard<'_, World> {
    world.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until shutdown.
pub async fn run(ctx: Context) -> Result<(), Error> {
    let gate = ctx.health.gate("watch accounts and clusters");
    let world = Shared::default();
    let options = ctx.options.managed_service_account.clone();
    let clock = options.clock;
    let (wake, woken) = mpsc::channel::<Key>(64);
    let worker = Arc::new(Worker::new(
        ctx.client.clone(),
        world.clone(),
        options,
        ctx.options.guards.default_key,
        ctx.options.registration_driver,
        Strangers::new(wake, ctx.shutdown.clone()),
    ));
    let mut watches = watches(&ctx.client);
    watches.push(
        woken
            .map(|key| Box::new(move |_: &mut World| vec![key]) as Change)
            .boxed(),
    );
    let mut changes = stream::select_all(watches);
    let mut schedule = Schedule::<Key>::default();
    let mut backoffs: BTreeMap<Key, Backoff> = BTreeMap::new();
    let mut running: FuturesUnordered<Work> = FuturesUnordered::new();
    let mut ready = false;
    let meter = ctx.health.meter("managed_service_account");
    let events = Events::new(ctx.client.clone(), "writ-hub/managed_service_account");
    loop {
        while ready && running.len() < CONCURRENCY {
            let Some(key) = schedule.take(clock.now()) else {
                break;
            };
            let (worker, meter) = (worker.clone(), meter.clone());
            running.push(
                async move {
                    let began = Instant::now();
                    let done = worker.work(&key).await;
                    meter.looked_since(began, done.is_ok());
                    (key, done)
                }
                .boxed(),
            );
        }
        let due = if ready && running.len() < CONCURRENCY {
            schedule.next_due()
        } else {
            None
        };
        tokio::select! {
            () = ctx.shutdown.cancelled() => return Ok(()),
            change = changes.next() => {
                let Some(change) = change else { return Ok(()) };
                let keys = {
                    let mut world = world.write().unwrap_or_else(PoisonError::into_inner);
                    let mut keys = change(&mut world);
                    if !ready && world.is_ready() {
                        ready = true;
                        gate.open();
                        keys.push(Key::Policy);
                    }
                    keys
                };
                for key in keys {
                    schedule.now(&key, clock.now());
                }
            }
            Some((key, done)) = running.next() => {
                let due = match done {
                    Ok(due) => {
                        backoffs.remove(&key);
                        due
                    }
                    Err(error) => {
                        let about = read(&world).about(&key);
                        will_try_again(&key, &error, &events, about).await;
                        let backoff = backoffs
                            .entry(key.clone())
                            .or_insert_with(|| Backoff::new(Duration::from_millis(200), Duration::from_mins(1)));
                        clock.now().saturating_add(backoff.next_delay()).ok()
                    }
                };
                schedule.done(&key, due, None, clock.now());
            }
            () = clock.sleep_until(due) => {}
        }
    }
}

/// Every watch, as changes of the world.
fn watches(client: &Client) -> Vec<BoxStream<'static, Change>> {
    let all = watcher::Config::default;
    let of_addon = || all().labels(&format!("{LABEL_ADDON}={ADDON}"));
    let named = |name: &str| all().fields(&format!("metadata.name={name}"));
    vec![
        watch::<ManagedServiceAccount>(client, all(), |world, event| {
            // A child that goes is gone from the mirror: where it came from must be known before.
            let before = deleted_parent(&event);
            let ids = world.accounts.take(event, without_managed_fields);
            let mut keys: Vec<Key> = before.into_iter().collect();
            for id in ids {
                if world.accounts.get(&id.0, &id.1).is_none() {
                    world.went.remove(&id);
                }
                keys.push(Key::Cluster(id.0.clone()));
                keys.push(Key::Owner(id.clone()));
                if let Some(parent) = world.accounts.get(&id.0, &id.1).and_then(parent_id) {
                    keys.push(Key::Account(parent));
                }
                keys.extend(world.namesakes(&id.1));
                keys.extend(children(world, &id));
                keys.push(Key::Account(id));
            }
            keys
        }),
        watch::<proxy::ManagedServiceAccount>(client, all(), |world, event| {
            let ids = world.owners.take(event, without_managed_fields);
            ids.into_iter().map(Key::Owner).collect()
        }),
        watch::<ManagedCluster>(client, all(), |world, event| {
            let ids = world.clusters.take(event, without_managed_fields);
            world.cluster_changed(ids.into_iter().map(|(_, name)| name).collect())
        }),
        watch::<ManagedClusterSet>(client, all(), |world, event| {
            world.sets.take(event, without_managed_fields);
            world.parents().map(|id| Key::Account(id.clone())).collect()
        }),
        watch::<ManagedClusterSetBinding>(client, all(), |world, event| {
            let ids = world.bindings.take(event, without_managed_fields);
            let bound = |id: &&Id| ids.iter().any(|(namespace, _)| *namespace == id.0);
            world
                .parents()
                .filter(bound)
                .map(|id| Key::Account(id.clone()))
                .collect()
        }),
        watch::<ManagedClusterAddOn>(client, named(ADDON), |world, event| {
            let ids = world.addons.take(event, without_managed_fields);
            ids.into_iter()
                .map(|(cluster, _)| Key::Cluster(cluster))
                .collect()
        }),
        watch::<ManifestWork>(client, of_addon(), |world, event| {
            let ids = world.works.take(event, without_managed_fields);
            ids.into_iter()
                .map(|(cluster, _)| Key::Cluster(cluster))
                .collect()
        }),
        watch::<Secret>(
            client,
            all().labels(&format!("{LABEL_MANAGED}=true")),
            |world, event| {
                let went = match &event {
                    Event::Delete(secret) => secret.resource_version(),
                    _ => None,
                };
                let ids = world.secrets.take(event, |secret| SeenSecret::of(&secret));
                for id in &ids {
                    match &went {
                        Some(version) if world.accounts.get(&id.0, &id.1).is_some() => {
                            world.went.insert(id.clone(), version.clone());
                        }
                        _ => drop(world.went.remove(id)),
                    }
                }
                ids.into_iter().map(Key::Account).collect()
            },
        ),
        watch::<CertificateSigningRequest>(client, of_addon(), |world, event| {
            let ids = world.requests.take(event, without_managed_fields);
            let clusters = ids.iter().filter_map(|(_, name)| {
                let request = world.requests.get("", name)?;
                request
                    .labels()
                    .get(CLUSTER_NAME_LABEL)
                    .cloned()
                    .map(Key::Cluster)
            });
            let mut keys: Vec<Key> = clusters.collect();
            keys.extend(ids.into_iter().map(|(_, name)| Key::Request(name)));
            keys
        }),
        watch::<ValidatingAdmissionPolicy>(client, named(POLICY), |world, event| {
            world.policies.take(event, without_managed_fields);
            world.policy_changed()
        }),
        watch::<ValidatingAdmissionPolicyBinding>(client, named(POLICY), |world, event| {
            world.policy_bindings.take(event, without_managed_fields);
            world.policy_changed()
        }),
        watch::<Role>(client, named(AGENT_ROLE), |world, event| {
            let ids = world.roles.take(event, without_managed_fields);
            ids.into_iter()
                .map(|(cluster, _)| Key::Cluster(cluster))
                .collect()
        }),
        watch::<RoleBinding>(client, named(AGENT_ROLE), |world, event| {
            let ids = world.role_bindings.take(event, without_managed_fields);
            ids.into_iter()
                .map(|(cluster, _)| Key::Cluster(cluster))
                .collect()
        }),
        watch::<ServiceAccount>(client, named(ADDON_ACCOUNT), |world, event| {
            let ids = world.identities.take(event, without_managed_fields);
            ids.into_iter()
                .map(|(cluster, _)| Key::Cluster(cluster))
                .collect()
        }),
    ]
}

fn watch<K>(
    client: &Client,
    config: watcher::Config,
    take: impl Fn(&mut World, Event<DeserializeGuard<K>>) -> Vec<Key> + Copy + Send + Sync + 'static,
) -> BoxStream<'static, Change>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    watcher(Api::<DeserializeGuard<K>>::all(client.clone()), config)
        .default_backoff()
        .filter_map(move |event| async move {
            match event {
                Ok(event) => Some(Box::new(move |world: &mut World| take(world, event)) as Change),
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "the watch failed, will start it again");
                    None
                }
            }
        })
        .boxed()
}

fn without_managed_fields<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

impl SeenSecret {
    /// What is kept of a Secret.
    pub fn of(secret: &Secret) -> Self {
        Self {
            digest: digest::of(secret),
            version: secret.resource_version().unwrap_or_default(),
            uid: secret.uid().unwrap_or_default(),
            orphaned: secret.owner_references().is_empty()
                && secret.annotations().contains_key(ANNOTATION_TOKEN_REQUEST),
        }
    }
}

/// The account in a cluster-set namespace that a child names.
fn parent_id(child: &ManagedServiceAccount) -> Option<Id> {
    let (namespace, name) = child.annotations().get(ANNOTATION_PARENT)?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn deleted_parent(event: &Event<DeserializeGuard<ManagedServiceAccount>>) -> Option<Key> {
    match event {
        Event::Delete(DeserializeGuard(Ok(child))) => parent_id(child).map(Key::Account),
        _ => None,
    }
}

/// The children of this account, whether or not it is still there.
fn children(world: &World, parent: &Id) -> Vec<Key> {
    world
        .accounts
        .named(&parent.1)
        .filter(|(_, account)| parent_id(account).as_ref() == Some(parent))
        .map(|(namespace, _)| Key::Account((namespace.to_owned(), parent.1.clone())))
        .collect()
}
