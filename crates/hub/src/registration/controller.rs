//! Watches clusters and everything that is kept for them; does what [`super::plan`] says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest,
    coordination::v1::Lease,
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding},
};
use kube::{Api, Resource, ResourceExt, core::PartialObjectMeta, runtime::watcher};
use writ_api::{
    addon::ManagedClusterAddOn,
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster},
    work::ManifestWork,
};
use writ_controller::{
    Error,
    events::Events,
    watching::{Mirror, Queue, events, metadata_events},
};

use super::{
    model::{LABEL, LEASE, Level, Observation},
    plan::cluster::{grace, has_finalizer, plan},
};
use crate::{Context, admission::access::AGENT_ACCOUNT, upsert::will_try_again};

/// How many clusters are worked on at once.
const CONCURRENCY: usize = 8;

type Meta<K> = PartialObjectMeta<K>;

enum Event {
    Cluster(watcher::Event<ManagedCluster>),
    Namespace(watcher::Event<Namespace>),
    Lease(watcher::Event<Lease>),
    Work(watcher::Event<Meta<ManifestWork>>),
    AddOn(watcher::Event<Meta<ManagedClusterAddOn>>),
    Request(watcher::Event<CertificateSigningRequest>),
    Role(watcher::Event<ClusterRole>),
    ClusterBinding(watcher::Event<ClusterRoleBinding>),
    Binding(watcher::Event<RoleBinding>),
    Account(watcher::Event<Meta<ServiceAccount>>),
}

/// What is kept of a lease: its content and when this process saw it change. Clocks of others are not trusted.
pub(super) struct Beat {
    renewed: Option<Timestamp>,
    seen: Instant,
    /// How far the agent's clock was from this one's when the lease was renewed; `None` if that was not seen.
    off: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) clusters: Mirror<ManagedCluster>,
    pub(super) namespaces: Mirror<()>,
    pub(super) leases: Mirror<Option<Timestamp>>,
    pub(super) works: Mirror<()>,
    pub(super) addons: Mirror<()>,
    pub(super) requests: Mirror<CertificateSigningRequest>,
    pub(super) roles: Mirror<ClusterRole>,
    pub(super) cluster_bindings: Mirror<ClusterRoleBinding>,
    pub(super) bindings: Mirror<RoleBinding>,
    pub(super) accounts: Mirror<()>,
}

pub(super) struct State {
    pub(super) context: Context,
    pub(super) events: Events,
    pub(super) seen: Seen,
    pub(super) beats: BTreeMap<String, Beat>,
    /// The certificate requests of each cluster, by name.
    pub(super) requests_of: BTreeMap<String, BTreeSet<String>>,
    pub(super) queue: Queue<String>,
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let gate = context.health.gate("watch ManagedClusters and their rights");
    let mut watched = watch_all(&context);
    let shutdown = context.shutdown.clone();
    let meter = context.health.meter("registration");
    let mut state = State {
        events: Events::new(context.client.clone(), "writ-hub/registration"),
        context,
        seen: Seen::default(),
        beats: BTreeMap::new(),
        requests_of: BTreeMap::new(),
        queue: Queue::new(meter),
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            event = watched.next() => {
                let Some(event) = event else { return Ok(()) };
                state.take(event);
                while let Some(Some(event)) = watched.next().now_or_never() {
                    state.take(event);
                }
            }
            () = tokio::time::sleep_until(state.queue.wakes_at().into()) => {}
        }
        if state.seen.is_ready() {
            gate.open();
            state.work().await;
        }
    }
}

fn watch_all(context: &Context) -> stream::SelectAll<BoxStream<'static, Event>> {
    let client = &context.client;
    let all = watcher::Config::default;
    let ours = || watcher::Config::default().labels(LABEL);
    let of_clusters = || watcher::Config::default().labels(CLUSTER_NAME_LABEL);
    let leases = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
    let accounts = watcher::Config::default().fields(&format!("metadata.name={AGENT_ACCOUNT}"));
    stream::select_all([
        events(Api::all(client.clone()), all())
            .map(Event::Cluster)
            .boxed(),
        events(Api::all(client.clone()), of_clusters())
            .map(Event::Namespace)
            .boxed(),
        events(Api::all(client.clone()), leases).map(Event::Lease).boxed(),
        // Metadata only: all that is asked of works and add-ons is whether one is left.
        metadata_events(Api::all(client.clone()), all())
            .map(Event::Work)
            .boxed(),
        metadata_events(Api::all(client.clone()), all())
            .map(Event::AddOn)
            .boxed(),
        events(Api::all(client.clone()), of_clusters())
            .map(Event::Request)
            .boxed(),
        events(Api::all(client.clone()), ours()).map(Event::Role).boxed(),
        events(Api::all(client.clone()), ours())
            .map(Event::ClusterBinding)
            .boxed(),
        events(Api::all(client.clone()), ours())
            .map(Event::Binding)
            .boxed(),
        metadata_events(Api::all(client.clone()), accounts)
            .map(Event::Account)
            .boxed(),
    ])
}

impl Seen {
    fn is_ready(&self) -> bool {
        self.clusters.is_ready()
            && self.namespaces.is_ready()
            && self.leases.is_ready()
            && self.works.is_ready()
            && self.addons.is_ready()
            && self.requests.is_ready()
            && self.roles.is_ready()
            && self.cluster_bindings.is_ready()
            && self.bindings.is_ready()
            && self.accounts.is_ready()
    }
}

fn cluster_of<K: Resource>(object: &K) -> Option<String> {
    object.labels().get(CLUSTER_NAME_LABEL).cloned()
}

fn namespace_of(key: &str) -> String {
    key.split('/').next().unwrap_or_default().to_owned()
}

impl State {
    fn take(&mut self, event: Event) {
        let seen = &mut self.seen;
        let mut touched = Vec::new();
        match event {
            Event::Cluster(event) => {
                touched.extend(seen.clusters.apply(event, |c| c).into_iter().map(|c| c.key));
            }
            Event::Namespace(event) => {
                touched.extend(seen.namespaces.apply(event, |_| ()).into_iter().map(|c| c.key));
            }
            Event::Lease(event) => {
                let changes = seen.leases.apply(event, |lease| {
                    lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0)
                });
                for change in changes {
                    let cluster = namespace_of(&change.key);
                    let renewed = seen.leases.get(&change.key).copied().flatten();
                    if change.gone {
                        self.beats.remove(&cluster);
                        touched.push(cluster);
                    } else if self
                        .beats
                        .get(&cluster)
                        .is_none_or(|beat| beat.renewed != renewed)
                    {
                        let off = |renewed| Timestamp::now().duration_since(renewed).unsigned_abs();
                        let before = self.beats.remove(&cluster);
                        let beat = Beat {
                            renewed,
                            seen: Instant::now(),
                            // The first that is seen may be long ago.
                            off: renewed.filter(|_| before.is_some()).map(off),
                        };
                        // A heartbeat alone changes nothing, unless clocks begin or cease to agree: the timer that runs
                        // looks at it when it is due.
                        let grace = seen.clusters.get(&cluster).map(grace);
                        let agree = |beat: &Beat| beat.off.zip(grace).map(|(off, most)| off < most);
                        if before.as_ref().is_none_or(|before| agree(before) != agree(&beat)) {
                            touched.push(cluster.clone());
                        }
                        self.beats.insert(cluster, beat);
                    }
                }
            }
            Event::Work(event) => {
                let changes = seen.works.apply(event, |_| ());
                touched.extend(
                    changes
                        .into_iter()
                        .filter(|c| c.gone)
                        .map(|c| namespace_of(&c.key)),
                );
            }
            Event::AddOn(event) => {
                let changes = seen.addons.apply(event, |_| ());
                touched.extend(
                    changes
                        .into_iter()
                        .filter(|c| c.gone)
                        .map(|c| namespace_of(&c.key)),
                );
            }
            Event::Request(event) => {
                for change in seen.requests.apply(event, |request| request) {
                    let of = |request: Option<&CertificateSigningRequest>| request.and_then(cluster_of);
                    let (was, is) = (of(change.old.as_ref()), of(seen.requests.get(&change.key)));
                    if let Some(names) = was.and_then(|cluster| self.requests_of.get_mut(&cluster)) {
                        names.remove(&change.key);
                    }
                    if let Some(cluster) = is {
                        let names = self.requests_of.entry(cluster.clone()).or_default();
                        names.insert(change.key);
                        touched.push(cluster);
                    }
                }
                self.requests_of.retain(|_, names| !names.is_empty());
            }
            Event::Role(event) => {
                for change in seen.roles.apply(event, |role| role) {
                    touched.extend(
                        change
                            .old
                            .iter()
                            .chain(seen.roles.get(&change.key))
                            .filter_map(cluster_of),
                    );
                }
            }
            Event::ClusterBinding(event) => {
                for change in seen.cluster_bindings.apply(event, |binding| binding) {
                    let now = seen.cluster_bindings.get(&change.key);
                    touched.extend(change.old.iter().chain(now).filter_map(cluster_of));
                }
            }
            Event::Binding(event) => {
                let changes = seen.bindings.apply(event, |binding| binding);
                touched.extend(changes.into_iter().map(|c| namespace_of(&c.key)));
            }
            Event::Account(event) => {
                let changes = seen.accounts.apply(event, |_| ());
                let of_clusters = changes.into_iter().map(|c| namespace_of(&c.key));
                touched.extend(of_clusters.filter(|name| seen.clusters.get(name).is_some()));
            }
        }
        for cluster in touched {
            self.queue.push(cluster);
        }
    }

    async fn work(&mut self) {
        let due = self.queue.take_due();
        let this = &*self;
        let results: Vec<_> = stream::iter(due)
            .map(|cluster| async move {
                let result = this.reconcile(&cluster).await;
                (cluster, result)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        for (cluster, result) in results {
            match result {
                Ok(again) => {
                    self.queue.done(&cluster);
                    if let Some(again) = again {
                        self.queue.push_after(cluster, again);
                    }
                }
                Err(error) => {
                    let about = self.seen.clusters.get(&cluster).map(|c| c.object_ref(&()));
                    will_try_again(&cluster, &error, &self.events, about).await;
                    self.queue.failed(cluster);
                }
            }
        }
    }

    /// One cluster: rights first when they grow, last when everything else of it is gone.
    async fn reconcile(&self, name: &str) -> Result<Option<Duration>, Error> {
        let Some(cluster) = self.seen.clusters.get(name) else {
            self.write_rights(name, None, Level::Nothing).await?;
            return Ok(None);
        };
        let mut observed = Observation {
            silent_for: self.beats.get(name).map(|beat| beat.seen.elapsed()),
            clock_off: self.beats.get(name).and_then(|beat| beat.off),
            works: self.seen.works.in_namespace(name).count(),
            addons: self.seen.addons.in_namespace(name).count(),
        };
        if cluster.metadata.deletion_timestamp.is_some() && observed.works + observed.addons == 0 {
            // One watch can be behind the other: before the agent loses its rights for good, the server is asked.
            (observed.works, observed.addons) = self.count_left(name).await?;
        }
        let plan = plan(cluster, &observed);
        // Each write tells the version that the next one carries.
        let mut latest = cluster.clone();
        if plan.finalizer {
            self.write_finalizer(&mut latest, true, plan.taken_over).await?;
        }
        if plan.home {
            self.write_home(name, observed.silent_for.is_some()).await?;
        }
        self.write_rights(name, Some(cluster), plan.level).await?;
        self.write_taints(&mut latest, plan.taints.as_deref()).await?;
        self.write_conditions(&mut latest, &plan.conditions).await?;
        self.delete(name, plan.delete).await?;
        self.answer_requests(&latest).await?;
        if !plan.finalizer {
            if cluster.metadata.deletion_timestamp.is_some() && has_finalizer(cluster) {
                self.clear_home(name).await?;
            }
            self.write_finalizer(&mut latest, false, None).await?;
        }
        Ok(plan.again_in)
    }

    /// The pending requests of a cluster, as far as they were seen.
    pub(super) fn requests(&self, cluster: &str) -> impl Iterator<Item = &CertificateSigningRequest> {
        let names = self.requests_of.get(cluster).into_iter().flatten();
        names.filter_map(|name| self.seen.requests.get(name))
    }
}
