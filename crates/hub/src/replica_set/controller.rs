//! Watches sets, works and decisions, plans, and writes the difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, Resource as _, ResourceExt,
    api::{ListParams, Patch, PatchParams},
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
use writ_runtime::{
    Error, apply, error::Context as _, events::Events, guarded::guarded, metrics::Meter, segment,
};

use super::{
    plan::{self, Observed},
    rollout::Group,
};
use crate::{Context, MANAGER, upsert::will_try_again};

struct Shared {
    context: Context,
    events: Events,
    meter: Meter,
    works: Store<ManifestWork>,
    decisions: Store<PlacementDecision>,
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
    });
    let run = controller
        .watches_stream(work_events, |work| owner_of(&work))
        .watches_stream(decision_events, move |decision| concerned(&sets, &decision))
        .with_config(kube::runtime::controller::Config::default().concurrency(5))
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(
            |set, shared| async move {
                let began = Instant::now();
                let done = reconcile(&set, &shared).await;
                shared.meter.looked_since(began, done.is_ok());
                if let Err(error) = &done {
                    will_try_again(&set.name_any(), error, &shared.events, Some(set.object_ref(&()))).await;
                }
                done
            },
            |_, _, _| Action::requeue(Duration::from_secs(5)),
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

async fn reconcile(set: &ManifestWorkReplicaSet, shared: &Shared) -> Result<Action, Error> {
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
        return finalize(set, &sets, &works, shared).await;
    }
    if !set.finalizers().iter().any(|f| f == REPLICA_SET_FINALIZER) {
        let mut finalizers = set.finalizers().to_vec();
        finalizers.push(REPLICA_SET_FINALIZER.into());
        patch_finalizers(set, &sets, &finalizers).await?;
    }
    let mut placements = placements(set, &shared.decisions);
    let look = |placements: &BTreeMap<String, Vec<Group>>| {
        plan::plan(&Observed {
            set,
            placements,
            works: &works,
            now: Timestamp::now(),
        })
    };
    let mut plan = look(&placements);
    if !plan.delete.is_empty() {
        // The decisions of a placement that was deleted go one after the other: that decides nothing.
        let present = present(set, shared).await?;
        placements.retain(|name, _| present.contains(name));
        plan = look(&placements);
    }
    for wanted in &plan.apply {
        let namespace = wanted.namespace().unwrap_or_default();
        let api: Api<ManifestWork> = Api::namespaced(shared.context.client.clone(), &namespace);
        write(&api, wanted).await?;
    }
    delete(shared, &plan.delete).await?;
    apply::ensure_status(&sets, set, &plan.status, MANAGER).await?;
    Ok(plan.look_again.map_or_else(Action::await_change, Action::requeue))
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

/// Creates the work, or replaces its spec.
async fn write(api: &Api<ManifestWork>, wanted: &ManifestWork) -> Result<(), Error> {
    let name = wanted.name_any();
    let what = || {
        format!(
            "write ManifestWork {}/{name}",
            wanted.namespace().unwrap_or_default()
        )
    };
    let current = api.get_opt(&name).await.context(what)?;
    match current {
        None => {
            apply::ensure(api, None, wanted, MANAGER).await?;
        }
        Some(current) => {
            let have = json!({"spec": current.spec, "labels": current.labels()});
            let want = json!({"spec": wanted.spec, "labels": wanted.labels()});
            let Some(mut patch) = apply::replacement(&have, &want) else {
                return Ok(());
            };
            // Labels of others stay.
            if let Some(map) = patch.as_object_mut() {
                map.remove("labels");
                map.insert(
                    "metadata".into(),
                    json!({"uid": current.uid(), "resourceVersion": current.resource_version(), "labels": wanted.labels()}),
                );
            }
            api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Merge(&patch))
                .await
                .context(what)?;
        }
    }
    Ok(())
}

async fn delete(shared: &Shared, works: &[ManifestWork]) -> Result<(), Error> {
    for work in works {
        let cluster = work.namespace().unwrap_or_default();
        let api: Api<ManifestWork> = Api::namespaced(shared.context.client.clone(), &cluster);
        apply::delete(&api, &work.name_any(), work.uid().as_deref()).await?;
    }
    Ok(())
}

async fn finalize(
    set: &ManifestWorkReplicaSet,
    sets: &Api<ManifestWorkReplicaSet>,
    works: &[ManifestWork],
    shared: &Shared,
) -> Result<Action, Error> {
    let kept: Vec<String> = set
        .finalizers()
        .iter()
        .filter(|f| *f != REPLICA_SET_FINALIZER)
        .cloned()
        .collect();
    if kept.len() == set.finalizers().len() {
        return Ok(Action::await_change());
    }
    let left: Vec<ManifestWork> = works
        .iter()
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .cloned()
        .collect();
    delete(shared, &left).await?;
    let waits = set.spec.cascade_deletion_policy == CascadeDeletionPolicy::Foreground && !works.is_empty();
    if !waits {
        patch_finalizers(set, sets, &kept).await?;
    }
    Ok(Action::await_change())
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
