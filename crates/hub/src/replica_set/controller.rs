//! Watches sets, works and decisions, plans, and writes the difference.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource as _, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::PartialObjectMeta,
    runtime::{
        Controller, WatchStreamExt,
        controller::Action,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use serde_json::json;
use writ_api::{
    cluster::{
        Placement, PlacementDecision,
        placement_decision::{GROUP_INDEX_LABEL, GROUP_NAME_LABEL, PLACEMENT_LABEL},
    },
    work::{
        CascadeDeletionPolicy, ManifestWork, ManifestWorkReplicaSet, REPLICA_SET_FINALIZER, REPLICA_SET_LABEL,
    },
};
use writ_controller::{
    Error, error::Context as _, events::Events, metrics::Meter, tolerant::guarded, watching::metadata_events,
    write,
};
use writ_runtime::segment;

use super::{
    failures::Failures,
    plan::{self, Observed},
    rollout::Group,
    write::{delete, write},
};
use crate::{Context, MANAGER, upsert::will_try_again};

/// After how long a look that failed as a whole, and a deletion, is tried again.
const RETRY: Duration = Duration::from_secs(5);

struct Shared {
    context: Context,
    events: Events,
    meter: Meter,
    works: Store<ManifestWork>,
    decisions: Store<PlacementDecision>,
    failures: AllFailures,
}

/// What could not be written, of each set.
#[derive(Default)]
struct AllFailures(Mutex<HashMap<ObjectRef<ManifestWorkReplicaSet>, Failures>>);

impl AllFailures {
    fn of<T>(&self, set: &ManifestWorkReplicaSet, run: impl FnOnce(&mut Failures) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        run(all.entry(ObjectRef::from_obj(set)).or_default())
    }

    fn forget(&self, set: &ManifestWorkReplicaSet) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&ObjectRef::from_obj(set));
    }

    /// The sets that could not write to this cluster, which now may be able to.
    fn wake(&self, cluster: &str) -> Vec<ObjectRef<ManifestWorkReplicaSet>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = all
            .iter_mut()
            .filter_map(|(set, failures)| failures.wake(cluster, Instant::now()).then(|| set.clone()));
        woken.collect()
    }
}

/// How a look at a set ended: when the next one is due, and what could not be done although the rest was.
struct Looked {
    next: Action,
    failed: Option<Error>,
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let gate = context.health.gate("watch ManifestWorkReplicaSets");
    let client = context.client.clone();
    let (works, works_writer) = reflector::store();
    let (decisions, decisions_writer) = reflector::store();
    let work_events = guarded::<ManifestWork>(
        Api::all(client.clone()),
        watcher::Config::default().labels(REPLICA_SET_LABEL),
    )
    .default_backoff()
    .modify(|work| {
        // When we wrote is all that is needed of it.
        let mut fields = work.metadata.managed_fields.take().unwrap_or_default();
        fields.retain(|entry| entry.manager.as_deref() == Some(MANAGER));
        for entry in &mut fields {
            entry.fields_v1 = None;
        }
        work.metadata.managed_fields = Some(fields);
    })
    .reflect(works_writer)
    .touched_objects();
    let decision_events = guarded::<PlacementDecision>(Api::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(|decision| decision.metadata.managed_fields = None)
        .reflect(decisions_writer)
        .touched_objects();
    let (sets, sets_writer) = reflector::store();
    // Held nowhere: only those matter whose cluster could not be written.
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let namespace_events =
        metadata_events(namespaces, watcher::Config::default()).filter_map(|event| async move {
            match event {
                watcher::Event::Apply(namespace) | watcher::Event::InitApply(namespace) => {
                    Some(Ok(namespace))
                }
                _ => None,
            }
        });
    let set_events = guarded::<ManifestWorkReplicaSet>(Api::all(client), watcher::Config::default())
        .default_backoff()
        .reflect(sets_writer)
        .applied_objects();
    let controller = Controller::for_stream(set_events, sets.clone());
    let ready = {
        let (sets, works, decisions) = (sets.clone(), works.clone(), decisions.clone());
        async move {
            let all = futures::join!(
                sets.wait_until_ready(),
                works.wait_until_ready(),
                decisions.wait_until_ready()
            );
            if let (Ok(()), Ok(()), Ok(())) = all {
                gate.open();
            }
        }
    };
    let shutdown = context.shutdown.clone();
    let shared = Arc::new(Shared {
        events: Events::new(context.client.clone(), "writ-hub/replica_set"),
        meter: context.health.meter("replica_set"),
        context,
        works,
        decisions,
        failures: AllFailures::default(),
    });
    let waiting = Arc::clone(&shared);
    let run = controller
        .watches_stream(work_events, |work| owner_of(&work))
        .watches_stream(decision_events, move |decision| concerned(&sets, &decision))
        .watches_stream(namespace_events, move |namespace| {
            let alive = namespace.metadata.deletion_timestamp.is_none();
            let woken = alive.then(|| waiting.failures.wake(&namespace.name_any()));
            woken.unwrap_or_default()
        })
        .with_config(kube::runtime::controller::Config::default().concurrency(5))
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(
            |set, shared| async move {
                let began = Instant::now();
                let done = reconcile(&set, &shared).await;
                let failed = done.as_ref().map_or_else(Some, |looked| looked.failed.as_ref());
                shared.meter.looked_since(began, failed.is_none());
                if let Some(error) = failed {
                    will_try_again(&set.name_any(), error, &shared.events, Some(set.object_ref(&()))).await;
                }
                done.map(|looked| looked.next)
            },
            |_, _, _| Action::requeue(RETRY),
            shared,
        )
        .for_each(|_| futures::future::ready(()));
    futures::join!(ready, run);
    Ok(())
}

/// The set that a work was made for.
fn owner_of(work: &ManifestWork) -> Option<ObjectRef<ManifestWorkReplicaSet>> {
    let (namespace, name) = work.labels().get(REPLICA_SET_LABEL)?.split_once('.')?;
    Some(ObjectRef::new(name).within(namespace))
}

/// The sets that a placement's decision is about.
fn concerned(
    sets: &Store<ManifestWorkReplicaSet>,
    decision: &PlacementDecision,
) -> Vec<ObjectRef<ManifestWorkReplicaSet>> {
    let Some(placement) = decision.labels().get(PLACEMENT_LABEL) else {
        return Vec::new();
    };
    sets.state()
        .iter()
        .filter(|set| {
            set.namespace() == decision.namespace()
                && set
                    .spec
                    .placement_refs
                    .iter()
                    .any(|reference| reference.name == *placement)
        })
        .map(|set| ObjectRef::from_obj(&**set))
        .collect()
}

async fn reconcile(set: &ManifestWorkReplicaSet, shared: &Shared) -> Result<Looked, Error> {
    // Nothing is decided on half a listing.
    let ready = futures::join!(
        shared.works.wait_until_ready(),
        shared.decisions.wait_until_ready()
    );
    if !matches!(ready, (Ok(()), Ok(()))) {
        return Err(Error::Invalid("the watches have ended".into()));
    }
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(
        shared.context.client.clone(),
        &set.namespace().unwrap_or_default(),
    );
    let works: Vec<ManifestWork> = shared
        .works
        .state()
        .iter()
        .filter(|work| plan::is_own(set, work))
        .map(|work| (**work).clone())
        .collect();
    if set.metadata.deletion_timestamp.is_some() {
        shared.failures.forget(set);
        return finalize(set, &sets, &works, shared).await;
    }
    if !set.finalizers().iter().any(|f| f == REPLICA_SET_FINALIZER) {
        let mut finalizers = set.finalizers().to_vec();
        finalizers.push(REPLICA_SET_FINALIZER.into());
        patch_finalizers(set, &sets, &finalizers).await?;
    }
    let mut placements = placements(set, &shared.decisions);
    shared
        .failures
        .of(set, |known| known.follow(set.metadata.generation, Instant::now()));
    let look =
        |placements: &BTreeMap<String, Vec<Group>>, written: &BTreeSet<String>, undeleted: &[String]| {
            plan::plan(&Observed {
                set,
                placements,
                works: &works,
                unwritten: &shared.failures.of(set, |known| known.unwritten(Instant::now())),
                written,
                undeleted,
                now: Timestamp::now(),
            })
        };
    let mut written = BTreeSet::new();
    let mut plan = look(&placements, &written, &[]);
    if !plan.delete.is_empty() {
        // The decisions of a placement that was deleted go one after the other: that decides nothing.
        let present = present(set, shared).await?;
        placements.retain(|name, _| present.contains(name));
        plan = look(&placements, &written, &[]);
    }
    // A cluster that fails may make room for another, or be one too many. Each is tried once.
    let mut errors = Vec::new();
    let mut failed = BTreeSet::new();
    loop {
        let before = errors.len();
        for wanted in &plan.apply {
            let cluster = wanted.namespace().unwrap_or_default();
            if written.contains(&cluster) || failed.contains(&cluster) {
                continue;
            }
            match write(shared.context.client.clone(), set, wanted).await {
                Ok(()) => {
                    shared.failures.of(set, |known| known.written(&cluster));
                    written.insert(cluster);
                }
                // A server that does not answer says nothing about a cluster.
                Err(error) if error.reason() == "Unreachable" => return Err(error),
                Err(error) => {
                    let why = error.to_string();
                    shared
                        .failures
                        .of(set, |known| known.failed(&cluster, why, Instant::now()));
                    failed.insert(cluster);
                    errors.push(error);
                }
            }
        }
        if errors.len() == before {
            break;
        }
        plan = look(&placements, &written, &[]);
    }
    let undeleted = delete(shared.context.client.clone(), &plan.delete).await;
    if !undeleted.is_empty() {
        let whys: Vec<String> = undeleted.iter().map(ToString::to_string).collect();
        plan = look(&placements, &written, &whys);
    }
    let retry = (!undeleted.is_empty()).then_some(RETRY);
    errors.extend(undeleted);
    let next_attempt = shared.failures.of(set, |known| {
        known.keep(&plan.failing);
        known.next(Instant::now())
    });
    write::ensure_status(&sets, set, &plan.status, MANAGER).await?;
    let next = [plan.look_again, next_attempt, retry].into_iter().flatten().min();
    Ok(Looked {
        next: next.map_or_else(Action::await_change, Action::requeue),
        failed: joined(errors),
    })
}

/// One error for several.
fn joined(mut errors: Vec<Error>) -> Option<Error> {
    if errors.len() < 2 {
        return errors.pop();
    }
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Some(Error::io(
        format!("{} works cannot be written or deleted", words.len()),
        words.join("; "),
    ))
}

/// The names of the placements that exist. Only those who are about to delete works need to know.
async fn present(set: &ManifestWorkReplicaSet, shared: &Shared) -> Result<BTreeSet<String>, Error> {
    let namespace = set.namespace().unwrap_or_default();
    let api: Api<Placement> = Api::namespaced(shared.context.client.clone(), &namespace);
    let list = api
        .list_metadata(&ListParams::default())
        .await
        .context(|| format!("list the Placements of namespace {namespace}"))?;
    let alive = list
        .items
        .iter()
        .filter(|item| item.metadata.deletion_timestamp.is_none());
    Ok(alive.map(ResourceExt::name_any).collect())
}

async fn finalize(
    set: &ManifestWorkReplicaSet,
    sets: &Api<ManifestWorkReplicaSet>,
    works: &[ManifestWork],
    shared: &Shared,
) -> Result<Looked, Error> {
    let done = Looked {
        next: Action::await_change(),
        failed: None,
    };
    let kept: Vec<String> = set
        .finalizers()
        .iter()
        .filter(|f| *f != REPLICA_SET_FINALIZER)
        .cloned()
        .collect();
    if kept.len() == set.finalizers().len() {
        return Ok(done);
    }
    let left: Vec<ManifestWork> = works
        .iter()
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .cloned()
        .collect();
    let undeleted = delete(shared.context.client.clone(), &left).await;
    if !undeleted.is_empty() {
        let whys: Vec<String> = undeleted.iter().map(ToString::to_string).collect();
        let status = plan::undeleted(set, &whys, Timestamp::now());
        write::ensure_status(sets, set, &status, MANAGER).await?;
        return Ok(Looked {
            next: Action::requeue(RETRY),
            failed: joined(undeleted),
        });
    }
    let waits = set.spec.cascade_deletion_policy == CascadeDeletionPolicy::Foreground && !works.is_empty();
    if !waits {
        patch_finalizers(set, sets, &kept).await?;
    }
    Ok(done)
}

async fn patch_finalizers(
    set: &ManifestWorkReplicaSet,
    sets: &Api<ManifestWorkReplicaSet>,
    finalizers: &[String],
) -> Result<(), Error> {
    let name = set.name_any();
    let patch = json!({"metadata": {
        "uid": set.uid(), "resourceVersion": set.resource_version(), "finalizers": finalizers}});
    sets.patch(&name, &PatchParams::apply(MANAGER), &Patch::Merge(&patch))
        .await
        .context(|| format!("change the finalizers of ManifestWorkReplicaSet {name}"))?;
    Ok(())
}

/// The decision groups of the set's placements, in the order of their indexes.
fn placements(
    set: &ManifestWorkReplicaSet,
    decisions: &Store<PlacementDecision>,
) -> BTreeMap<String, Vec<Group>> {
    let mut found: BTreeMap<String, BTreeMap<i32, Group>> = BTreeMap::new();
    for decision in decisions.state() {
        let labels = decision.labels();
        let Some(placement) = labels.get(PLACEMENT_LABEL) else {
            continue;
        };
        if decision.namespace() != set.namespace() {
            continue;
        }
        let index = labels
            .get(GROUP_INDEX_LABEL)
            .and_then(|index| index.parse().ok())
            .unwrap_or_default();
        let group = found
            .entry(placement.clone())
            .or_default()
            .entry(index)
            .or_default();
        group.index = index;
        group.name = labels.get(GROUP_NAME_LABEL).cloned().unwrap_or_default();
        let clusters = decision.status.iter().flat_map(|status| &status.decisions);
        // The name of a cluster is that of the namespace that its work is written to.
        let names = clusters.filter(|cluster| segment::is_plain(&cluster.cluster_name));
        group
            .clusters
            .extend(names.map(|cluster| cluster.cluster_name.clone()));
    }
    found
        .into_iter()
        .map(|(placement, groups)| {
            let groups = groups
                .into_values()
                .map(|mut group| {
                    group.clusters.sort();
                    group.clusters.dedup();
                    group
                })
                .collect();
            (placement, groups)
        })
        .collect()
}
