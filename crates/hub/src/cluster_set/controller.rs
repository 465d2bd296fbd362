//! Watches sets, clusters, bindings and the roles of sets; writes what differs.

use std::collections::BTreeSet;

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, rbac::v1::ClusterRole},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Resource as _, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher,
};
use serde_json::json;
use writ_api::cluster::{
    ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, managed_cluster::ReportedNamespace,
};
use writ_controller::{
    Error, condition,
    error::Context as _,
    events::Events,
    tolerant::Guarded,
    watching::{Mirror, Queue, events},
    write,
};

use super::{
    index::MembershipIndex,
    membership::{
        JOINED_ANNOTATION, Labels, REMOVE_LABELS_ANNOTATION, REMOVE_LABELS_FINALIZER, SetView, parse_joined,
    },
    plan,
};
use crate::{
    Context, MANAGER,
    upsert::{upsert, will_try_again},
};

/// The field manager of the one condition that this controller writes on clusters.
const CONDITION_MANAGER: &str = "writ-hub-cluster-set";
/// How many writes go on at once.
const CONCURRENCY: usize = 8;

enum Event {
    Cluster(watcher::Event<ManagedCluster>),
    Set(watcher::Event<ManagedClusterSet>),
    Binding(watcher::Event<ManagedClusterSetBinding>),
    Role(watcher::Event<ClusterRole>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Standing,
    Set(String),
    Cluster(String),
    Binding(String),
}

/// What is kept of a cluster.
#[derive(Debug, PartialEq)]
struct Cluster {
    labels: Labels,
    /// The keys under which it joined a set, whether or not that set is still there.
    joined: BTreeSet<String>,
    generation: Option<i64>,
    condition: Option<Condition>,
    /// The namespaces that its status names, without what its agent says of them.
    namespaces: Vec<ReportedNamespace>,
}

struct State {
    context: Context,
    fleet: MembershipIndex,
    clusters: Mirror<Cluster>,
    sets: Mirror<ManagedClusterSet>,
    bindings: Mirror<ManagedClusterSetBinding>,
    roles: Mirror<ClusterRole>,
    /// The keys of sets that went while this process looked: their labels may still be there.
    gone_keys: BTreeSet<String>,
    events: Events,
    queue: Queue<Item>,
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let gate = context.health.gate("watch ManagedClusterSets");
    let mut events = watch_all(&context);
    let shutdown = context.shutdown.clone();
    let meter = context.health.meter("cluster_set");
    let mut state = State {
        events: Events::new(context.client.clone(), "writ-hub/cluster_set"),
        context,
        fleet: MembershipIndex::default(),
        clusters: Mirror::default(),
        sets: Mirror::default(),
        bindings: Mirror::default(),
        roles: Mirror::default(),
        gone_keys: BTreeSet::new(),
        queue: Queue::new(meter),
    };
    state.queue.push(Item::Standing);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            event = events.next() => {
                let Some(event) = event else { return Ok(()) };
                state.take(event);
                // What is already here is taken in one go, so that a burst is worked on once.
                while let Some(Some(event)) = events.next().now_or_never() {
                    state.take(event);
                }
            }
            () = tokio::time::sleep_until(state.queue.wakes_at().into()) => {}
        }
        if state.is_ready() {
            gate.open();
            state.work().await;
        }
    }
}

fn watch_all(context: &Context) -> stream::SelectAll<BoxStream<'static, Event>> {
    let client = &context.client;
    let roles = watcher::Config::default().labels(plan::ROLE_LABEL);
    stream::select_all([
        events(Api::all(client.clone()), watcher::Config::default())
            .map(Event::Cluster)
            .boxed(),
        events(Api::all(client.clone()), watcher::Config::default())
            .map(Event::Set)
            .boxed(),
        events(Api::all(client.clone()), watcher::Config::default())
            .map(Event::Binding)
            .boxed(),
        events(Api::all(client.clone()), roles).map(Event::Role).boxed(),
    ])
}

impl State {
    fn is_ready(&self) -> bool {
        self.clusters.is_ready() && self.sets.is_ready() && self.bindings.is_ready() && self.roles.is_ready()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Cluster(event) => self.take_cluster(event),
            Event::Set(event) => self.take_set(event),
            Event::Binding(event) => {
                for change in self.bindings.apply(event, |binding| binding) {
                    if !change.gone {
                        self.queue.push(Item::Binding(change.key));
                    }
                }
            }
            Event::Role(event) => {
                for change in self.roles.apply(event, |role| role) {
                    if let Some(set) = change.key.rsplit(':').next().map(str::to_owned) {
                        self.queue.push(Item::Set(set));
                    }
                }
            }
        }
    }

    fn take_cluster(&mut self, event: watcher::Event<ManagedCluster>) {
        let mut seen: Vec<BTreeSet<String>> = Vec::new();
        if let watcher::Event::InitApply(cluster) | watcher::Event::Apply(cluster) = &event {
            let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
            seen.push(
                self.fleet
                    .upsert_cluster(&cluster.name_any(), cluster.labels(), joined),
            );
        }
        // It may have joined a set without any other change that is kept: by the annotation of its joined sets.
        let moved = seen.iter().any(|sets| !sets.is_empty());
        for change in self.clusters.apply(event, reduce) {
            if change.gone {
                seen.push(self.fleet.remove_cluster(&change.key));
            } else if moved || self.clusters.get(&change.key) != change.old.as_ref() {
                self.queue.push(Item::Cluster(change.key));
            }
        }
        for set in seen.into_iter().flatten() {
            self.queue.push(Item::Set(set));
        }
    }

    fn take_set(&mut self, event: watcher::Event<ManagedClusterSet>) {
        let guard = self.context.options.guards.default_key;
        let keys = |fleet: &MembershipIndex| {
            fleet
                .keys()
                .into_iter()
                .map(str::to_owned)
                .collect::<BTreeSet<_>>()
        };
        let known = keys(&self.fleet);
        let mut clusters = BTreeSet::new();
        for change in self.sets.apply(event, |set| set) {
            clusters.extend(match self.sets.get(&change.key) {
                Some(set) => self.fleet.upsert_set(SetView::of(set, guard)),
                None => self.fleet.remove_set(&change.key),
            });
            let asks = |set: &ManagedClusterSet| {
                if set.metadata.deletion_timestamp.is_none() {
                    set.spec.managed_namespaces.clone()
                } else {
                    Vec::new()
                }
            };
            if change.old.as_ref().map(asks) != self.sets.get(&change.key).map(asks) {
                clusters.extend(self.fleet.members(&change.key).into_iter().flatten().cloned());
            }
            let bindings = self
                .bindings
                .iter()
                .filter(|(_, b)| b.spec.cluster_set == change.key);
            for (key, _) in bindings {
                self.queue.push(Item::Binding(key.clone()));
            }
            if let Some(key) = change
                .old
                .as_ref()
                .filter(|_| change.gone)
                .and_then(|s| s.spec.key())
            {
                self.gone_keys.insert(key.to_owned());
            }
            if change.gone || change.old.is_none() {
                // A label that named this set names it no more, or does now.
                let named = self
                    .clusters
                    .iter()
                    .filter(|(_, c)| c.labels.values().any(|v| *v == change.key));
                clusters.extend(named.map(|(name, _)| name.clone()));
            }
            self.queue.push(Item::Set(change.key));
            self.queue.push(Item::Standing);
        }
        if keys(&self.fleet) != known {
            clusters.extend(self.clusters.iter().map(|(name, _)| name.clone()));
        }
        for cluster in clusters {
            self.queue.push(Item::Cluster(cluster));
        }
    }

    async fn work(&mut self) {
        let due = self.queue.take_due();
        let this = &*self;
        let results: Vec<_> = stream::iter(due)
            .map(|item| async move {
                let result = this.reconcile(&item).await;
                (item, result)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        for (item, result) in results {
            match result {
                Ok(()) => self.queue.done(&item),
                Err(error) => {
                    will_try_again(&item, &error, &self.events, self.about(&item)).await;
                    self.queue.failed(item);
                }
            }
        }
    }

    /// The object that an item is about, as far as it is kept.
    fn about(&self, item: &Item) -> Option<ObjectReference> {
        match item {
            Item::Set(name) => self.sets.get(name).map(|set| set.object_ref(&())),
            Item::Binding(key) => self.bindings.get(key).map(|binding| binding.object_ref(&())),
            Item::Standing | Item::Cluster(_) => None,
        }
    }

    async fn reconcile(&self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Standing => self.reconcile_standing().await,
            Item::Set(name) => match self.sets.get(name) {
                Some(set) if set.metadata.deletion_timestamp.is_some() => self.finish(set).await,
                Some(set) => self.reconcile_set(set).await,
                None => Ok(()),
            },
            Item::Cluster(name) => match self.clusters.get(name) {
                Some(cluster) => {
                    self.report_labels(name, cluster).await?;
                    self.report_namespaces(name, cluster).await
                }
                None => Ok(()),
            },
            Item::Binding(key) => match self.bindings.get(key) {
                Some(binding) => self.reconcile_binding(binding).await,
                None => Ok(()),
            },
        }
    }

    async fn reconcile_standing(&self) -> Result<(), Error> {
        if !self.context.options.guards.default_set {
            return Ok(());
        }
        let api: Api<ManagedClusterSet> = Api::all(self.context.client.clone());
        for wanted in plan::standing_sets() {
            match self.sets.get(&wanted.name_any()) {
                None => {
                    upsert(&api, None, &wanted).await?;
                }
                Some(current)
                    if plan::may_roll_back(current)
                        && current.spec.cluster_selector != wanted.spec.cluster_selector
                        && current.metadata.deletion_timestamp.is_none() =>
                {
                    let patch = json!([{"op": "replace", "path": "/spec/clusterSelector", "value": wanted.spec.cluster_selector}]);
                    let patch = serde_json::from_value(patch)
                        .map_err(|e| Error::Invalid(format!("the patch of a set: {e}")))?;
                    api.patch(
                        &wanted.name_any(),
                        &PatchParams::default(),
                        &Patch::<ManagedClusterSet>::Json(patch),
                    )
                    .await
                    .context(|| format!("roll back ManagedClusterSet {}", wanted.name_any()))?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    async fn reconcile_set(&self, set: &ManagedClusterSet) -> Result<(), Error> {
        let sets: Api<ManagedClusterSet> = Api::all(self.context.client.clone());
        let removes = set
            .annotations()
            .get(REMOVE_LABELS_ANNOTATION)
            .map(String::as_str)
            == Some("true");
        let has = set.finalizers().iter().any(|f| f == REMOVE_LABELS_FINALIZER);
        if removes != has {
            self.set_finalizer(set, removes).await?;
        }
        let roles: Api<ClusterRole> = Api::all(self.context.client.clone());
        for role in plan::roles(set) {
            upsert(&roles, self.roles.get(&role.name_any()), &role).await?;
        }
        let status = plan::set_status(set, &self.fleet, Timestamp::now());
        write::ensure_status(&sets, set, &status, MANAGER).await?;
        Ok(())
    }

    /// Takes the label of a deleted set off its clusters, then lets the set go.
    async fn finish(&self, set: &ManagedClusterSet) -> Result<(), Error> {
        if !set.finalizers().iter().any(|f| f == REMOVE_LABELS_FINALIZER) {
            return Ok(());
        }
        let name = set.name_any();
        if let Some(key) = set.spec.key() {
            let api: Api<Guarded<ManagedCluster>> = Api::all(self.context.client.clone());
            // The server is asked: one that came in a moment ago is not left behind, and one that has moved on
            // meanwhile keeps its new label, as each write names the version that was read.
            let labelled = api
                .list(&ListParams::default().labels(&format!("{key}={name}")))
                .await
                .context(|| format!("list the clusters with the label {key}={name}"))?;
            for cluster in labelled {
                let patch = json!({"metadata": {
                    "uid": cluster.uid(), "resourceVersion": cluster.resource_version(), "labels": {key: null},
                }});
                let name = cluster.name_any();
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .context(|| format!("take the label {key} off ManagedCluster {name}"))?;
            }
        }
        self.set_finalizer(set, false).await
    }

    async fn set_finalizer(&self, set: &ManagedClusterSet, wanted: bool) -> Result<(), Error> {
        let api: Api<ManagedClusterSet> = Api::all(self.context.client.clone());
        let mut finalizers: Vec<&str> = set
            .finalizers()
            .iter()
            .map(String::as_str)
            .filter(|f| *f != REMOVE_LABELS_FINALIZER)
            .collect();
        if wanted {
            finalizers.push(REMOVE_LABELS_FINALIZER);
        }
        let patch = json!({"metadata": {
            "uid": set.uid(), "resourceVersion": set.resource_version(), "finalizers": finalizers
        }});
        api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("change the finalizers of ManagedClusterSet {}", set.name_any()))?;
        Ok(())
    }

    async fn report_labels(&self, name: &str, cluster: &Cluster) -> Result<(), Error> {
        let reported = plan::reported_keys(&cluster.labels, cluster.condition.as_ref()).map(str::to_owned);
        let known = cluster.joined.iter().chain(&self.gone_keys).cloned();
        let known: BTreeSet<String> = known.chain(reported).collect();
        let wanted = plan::cluster_condition(&cluster.labels, &known, name, &self.fleet);
        let current: Vec<Condition> = cluster.condition.clone().into_iter().collect();
        let conditions: Vec<Condition> = wanted
            .iter()
            .map(|w| plan::timed(&current, w, cluster.generation, Timestamp::now()))
            .collect();
        if conditions == current {
            return Ok(());
        }
        // Several writers share the conditions of a cluster: apply touches only the one that is ours.
        let patch = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1",
            "kind": "ManagedCluster",
            "metadata": {"name": name},
            "status": {"conditions": conditions},
        });
        let api: Api<ManagedCluster> = Api::all(self.context.client.clone());
        api.patch_status(
            name,
            &PatchParams::apply(CONDITION_MANAGER).force(),
            &Patch::Apply(patch),
        )
        .await
        .context(|| format!("report on the labels of ManagedCluster {name}"))?;
        Ok(())
    }

    /// Tells the agent of a cluster which namespaces its sets ask for.
    async fn report_namespaces(&self, name: &str, cluster: &Cluster) -> Result<(), Error> {
        let sets = || self.fleet.sets_of(name).filter_map(|set| self.sets.get(set));
        if plan::managed_namespaces(&cluster.namespaces, sets()) == cluster.namespaces {
            return Ok(());
        }
        // The agent writes into the same list: what it says now is kept, and the version makes sure of it.
        let api: Api<ManagedCluster> = Api::all(self.context.client.clone());
        let live = api
            .get_opt(name)
            .await
            .context(|| format!("read ManagedCluster {name}"))?;
        let Some(live) = live else { return Ok(()) };
        let current = live.status.as_ref().map(|s| s.managed_namespaces.as_slice());
        let wanted = plan::managed_namespaces(current.unwrap_or_default(), sets());
        let patch = json!({
            "metadata": {"uid": live.uid(), "resourceVersion": live.resource_version()},
            "status": {"managedNamespaces": wanted},
        });
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("report the namespaces that the sets of ManagedCluster {name} ask for"))?;
        Ok(())
    }

    async fn reconcile_binding(&self, binding: &ManagedClusterSetBinding) -> Result<(), Error> {
        let namespace = binding.namespace().unwrap_or_default();
        let api = write::namespaced(&self.context.client, &namespace);
        let exists = self.sets.get(&binding.spec.cluster_set).is_some();
        let status = plan::binding_status(binding, exists, Timestamp::now());
        write::ensure_status(&api, binding, &status, MANAGER).await?;
        Ok(())
    }
}

fn reduce(cluster: ManagedCluster) -> Cluster {
    let status = cluster.status.unwrap_or_default();
    let namespaces = status.managed_namespaces.into_iter();
    let joined = cluster.metadata.annotations.iter().flatten();
    let joined = joined
        .filter(|(key, _)| *key == JOINED_ANNOTATION)
        .flat_map(|(_, value)| parse_joined(value).into_keys())
        .collect();
    Cluster {
        joined,
        labels: cluster.metadata.labels.unwrap_or_default(),
        generation: cluster.metadata.generation,
        condition: condition::find(&status.conditions, plan::CONDITION_LABELS).cloned(),
        namespaces: namespaces
            .map(|namespace| ReportedNamespace {
                conditions: Vec::new(),
                ..namespace
            })
            .collect(),
    }
}
