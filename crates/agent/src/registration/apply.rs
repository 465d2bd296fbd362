//! Beats once per lease duration; reports facts whenever one changes.

use std::time::Duration;

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Node},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    runtime::watcher,
};
use serde_json::json;
use tokio::time::Instant;
use writ_api::cluster::{ClusterClaim, ManagedCluster};
use writ_controller::{
    Error,
    backoff::Backoff,
    error::Context as _,
    watching::{Mirror, events, metadata_events},
};

use super::{
    api_health,
    heartbeat::Pace,
    plan::{self, Facts},
};
use crate::{Context, MANAGER, work::hub_hash};

const LEASE: &str = "managed-cluster-lease";
/// The field manager of the mark on namespaces.
const NAMESPACE_MANAGER: &str = "writ-agent-registration";
/// For how long the cluster's API server may fail before the cluster counts as unavailable.
const PATIENCE: Duration = Duration::from_secs(20);

#[expect(clippy::large_enum_variant, reason = "an event lives for a moment")]
enum Event {
    Cluster(watcher::Event<ManagedCluster>),
    Node(watcher::Event<Node>),
    Claim(watcher::Event<ClusterClaim>),
    Namespace(watcher::Event<PartialObjectMeta<Namespace>>),
}

struct State {
    context: Context,
    clusters: Mirror<ManagedCluster>,
    nodes: Mirror<Node>,
    claims: Mirror<ClusterClaim>,
    /// The namespaces with the mark, and whether it says that some set asks for them.
    namespaces: Mirror<bool>,
    /// The label that is the mark: it differs from hub to hub.
    mark: String,
    facts: Facts,
    failing_since: Option<Instant>,
    pace: Pace,
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let gate = context.health.gate("watch the own ManagedCluster");
    let mut watched = watch_all(&context);
    let shutdown = context.shutdown.clone();
    let mut state = State {
        mark: mark(&context),
        context,
        clusters: Mirror::default(),
        nodes: Mirror::default(),
        claims: Mirror::default(),
        namespaces: Mirror::default(),
        // Nobody has asked yet: an answer has to make it well.
        facts: Facts {
            unwell: Some(String::new()),
            ..Facts::default()
        },
        failing_since: None,
        pace: Pace::default(),
    };
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    let mut beat_at = Instant::now();
    let mut report_at: Option<Instant> = None;
    loop {
        let wake = report_at.map_or(beat_at, |at| at.min(beat_at));
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            event = watched.next() => {
                let Some(event) = event else { return Ok(()) };
                state.take(event);
                while let Some(Some(event)) = watched.next().now_or_never() {
                    state.take(event);
                }
            }
            () = tokio::time::sleep_until(wake) => {}
        }
        if !state.is_ready() {
            continue;
        }
        gate.open();
        if Instant::now() >= beat_at {
            let every = state.beat().await;
            beat_at = Instant::now() + every;
        }
        report_at = match state.report().await {
            Ok(()) => {
                backoff.reset();
                None
            }
            Err(error) => {
                if !error.is_code(409) {
                    tracing::warn!(%error, "could not report to the hub, trying again");
                }
                Some(Instant::now() + backoff.next_delay())
            }
        };
    }
}

fn watch_all(context: &Context) -> stream::SelectAll<BoxStream<'static, Event>> {
    let own = watcher::Config::default().fields(&format!("metadata.name={}", context.options.cluster_name));
    stream::select_all([
        events(Api::all(context.hub.clone()), own)
            .map(Event::Cluster)
            .boxed(),
        events(Api::all(context.spoke.clone()), watcher::Config::default())
            .map(Event::Node)
            .boxed(),
        events(Api::all(context.spoke.clone()), watcher::Config::default())
            .map(Event::Claim)
            .boxed(),
        metadata_events(
            Api::all(context.spoke.clone()),
            watcher::Config::default().labels(&mark(context)),
        )
        .map(Event::Namespace)
        .boxed(),
    ])
}

/// The label of the namespaces that sets of this hub ask for, as upstream's agents write it.
fn mark(context: &Context) -> String {
    let hash = hub_hash(&context.options.work.hub_server);
    let hash: String = hash.chars().take(63).collect();
    format!("clusterset.open-cluster-management.io/{hash}")
}

impl State {
    fn is_ready(&self) -> bool {
        self.clusters.is_ready() && self.nodes.is_ready() && self.claims.is_ready()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Cluster(event) => drop(self.clusters.apply(event, |cluster| cluster)),
            Event::Node(event) => drop(self.nodes.apply(event, |node| node)),
            Event::Claim(event) => drop(self.claims.apply(event, |claim| claim)),
            Event::Namespace(event) => {
                let mark = &self.mark;
                let asked = |namespace: PartialObjectMeta<Namespace>| {
                    namespace.labels().get(mark).is_some_and(|value| value == "true")
                };
                drop(self.namespaces.apply(event, asked));
            }
        }
    }

    /// Renews the lease and looks whether the cluster's API server answers; returns when to do it again.
    async fn beat(&mut self) -> Duration {
        let name = &self.context.options.cluster_name;
        let leases: Api<Lease> = Api::namespaced(self.context.hub.clone(), name);
        let patch = json!({"spec": {"renewTime": MicroTime(Timestamp::now()), "holderIdentity": LEASE}});
        let renewed = leases
            .patch(LEASE, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("renew Lease {name}/{LEASE}"));
        let every = self
            .clusters
            .get(name)
            .and_then(|c| c.spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map_or(Duration::from_mins(1), Duration::from_secs);
        match api_health::ask(&self.context.spoke).await {
            Ok(()) => {
                self.failing_since = None;
                self.facts.unwell = None;
                // An answer that says nothing new; without one the version is what it was.
                if let Ok(version) = self.context.spoke.apiserver_version().await {
                    self.facts.version = Some(version.git_version);
                }
            }
            Err(error) => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if self.facts.unwell.is_some() || since.elapsed() >= PATIENCE {
                    let code = error.code().unwrap_or_default();
                    self.facts.unwell = Some(format!("status code: {code}, {error}"));
                }
                tracing::warn!(%error, "the API server of this cluster is not well");
            }
        }
        if let Err(error) = &renewed {
            tracing::warn!(%error, "trying again soon");
        }
        self.pace
            .pause(every, renewed.is_ok(), self.failing_since.is_none())
    }

    async fn report(&mut self) -> Result<(), Error> {
        let name = self.context.options.cluster_name.clone();
        let Some(cluster) = self.clusters.get(&name).cloned() else {
            return Ok(());
        };
        self.facts.resources = plan::resources(self.nodes.iter().map(|(_, node)| node));
        self.facts.claims = plan::claims(
            self.claims.iter().map(|(_, claim)| claim),
            &self.context.running_controllers(),
            &self.context.options.agent_namespace,
        );
        self.facts.labels = self.apply_labels(&cluster).await?;
        self.apply_namespaces(&cluster).await?;
        if let Some(patch) = plan::status_patch(&cluster, &self.facts, Timestamp::now()) {
            let api: Api<ManagedCluster> = Api::all(self.context.hub.clone());
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .context(|| format!("report the status of ManagedCluster {name}"))?;
        }
        Ok(())
    }

    /// Sets the labels that the agent was told to set. A refusal is an answer, not a failure.
    async fn apply_labels(&self, cluster: &ManagedCluster) -> Result<Option<Result<(), String>>, Error> {
        let wanted = &self.context.options.cluster_labels;
        if wanted.is_empty() {
            return Ok(None);
        }
        let has = |(key, value): (&String, &String)| cluster.labels().get(key) == Some(value);
        if wanted.iter().all(has) {
            return Ok(Some(Ok(())));
        }
        let api: Api<ManagedCluster> = Api::all(self.context.hub.clone());
        let name = cluster.name_any();
        // A whole object: the right that is needed is `update`, nothing else.
        let mut changed = cluster.clone();
        changed.labels_mut().extend(wanted.clone());
        let params = PostParams {
            field_manager: Some(MANAGER.into()),
            ..PostParams::default()
        };
        match api.replace(&name, &params, &changed).await {
            Ok(_) => Ok(Some(Ok(()))),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                Ok(Some(Err(status.message.clone())))
            }
            Err(error) => Err(error).context(|| format!("set the labels of ManagedCluster {name}")),
        }
    }

    /// Makes and marks the namespaces that the sets of this cluster ask for. One that is not asked for any more stays.
    async fn apply_namespaces(&mut self, cluster: &ManagedCluster) -> Result<(), Error> {
        // Whoever may not watch namespaces still reports everything else.
        if !self.namespaces.is_ready() {
            return Ok(());
        }
        let status = cluster.status.as_ref();
        let asked = status
            .map(|s| s.managed_namespaces.as_slice())
            .unwrap_or_default();
        let changes = plan::namespace_changes(asked, self.namespaces.iter());
        self.facts.namespaces = asked.iter().map(|a| (a.name.clone(), Ok(()))).collect();
        let api: Api<Namespace> = Api::all(self.context.spoke.clone());
        let params = PatchParams::apply(NAMESPACE_MANAGER).force();
        for name in changes.apply {
            let wanted = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {&self.mark: "true"}},
            });
            match api.patch(&name, &params, &Patch::Apply(wanted)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code < 500 => {
                    self.facts.namespaces.insert(name, Err(status.message.clone()));
                }
                Err(error) => return Err(error).context(|| format!("make the Namespace {name}")),
            }
        }
        for name in changes.release {
            let patch = json!({"metadata": {"labels": {&self.mark: "false"}}});
            match api
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                answer => {
                    answer.context(|| format!("take the mark off Namespace {name}"))?;
                }
            }
        }
        Ok(())
    }
}
