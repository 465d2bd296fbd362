//! Watches clusters, sets, bindings, placements, decisions and scores; schedules what a change touches.

mod chosen;
mod kept;
mod state;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
    runtime::watcher,
};
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision,
    placement::{CONDITION_MISCONFIGURED, DecisionGroupStatus, PlacementStatus, SortBy},
    placement_decision::{
        ClusterDecision, GROUP_INDEX_LABEL, GROUP_NAME_LABEL, PLACEMENT_LABEL, PlacementDecisionStatus,
    },
};
use writ_controller::{
    Error, condition,
    error::Context as _,
    events::Events,
    watching::{Queue, events},
    write,
};

pub use self::state::Scheduler;
use super::{
    facts,
    groups::DecisionObject,
    plan::{self, Outcome},
    rate,
};
use crate::{Context, MANAGER, upsert::will_try_again};

/// How many placements are written at once.
const CONCURRENCY: usize = 8;

/// What happened on the hub.
pub enum Event {
    /// To a cluster.
    Cluster(watcher::Event<ManagedCluster>),
    /// To a set.
    Set(watcher::Event<ManagedClusterSet>),
    /// To a binding.
    Binding(watcher::Event<ManagedClusterSetBinding>),
    /// To a placement.
    Placement(watcher::Event<Placement>),
    /// To a decision.
    Decision(watcher::Event<PlacementDecision>),
    /// To a score of an add-on.
    Score(watcher::Event<AddOnPlacementScore>),
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let gate = context.health.gate("watch Placements");
    let mut watched = watch_all(&context);
    let mut state = Scheduler::new(context.options.guards.default_key);
    let mut queue: Queue<String> = Queue::new(context.health.meter("placement"));
    let told = Events::new(context.client.clone(), "writ-hub/placement");
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return Ok(()),
            event = watched.next() => {
                let Some(event) = event else { return Ok(()) };
                state.take(event);
                while let Some(Some(event)) = watched.next().now_or_never() {
                    state.take(event);
                }
            }
            () = tokio::time::sleep_until(queue.wakes_at().into()) => {}
        }
        if !state.is_ready() {
            continue;
        }
        gate.open();
        for placement in state.take_dirty() {
            queue.push(placement);
        }
        work(&context, &mut state, &mut queue, &told).await;
    }
}

fn watch_all(context: &Context) -> stream::SelectAll<BoxStream<'static, Event>> {
    let client = &context.client;
    let all = watcher::Config::default;
    stream::select_all([
        events(Api::all(client.clone()), all())
            .map(Event::Cluster)
            .boxed(),
        events(Api::all(client.clone()), all()).map(Event::Set).boxed(),
        events(Api::all(client.clone()), all())
            .map(Event::Binding)
            .boxed(),
        events(Api::all(client.clone()), all())
            .map(Event::Placement)
            .boxed(),
        events(Api::all(client.clone()), all())
            .map(Event::Decision)
            .boxed(),
        events(Api::all(client.clone()), all()).map(Event::Score).boxed(),
    ])
}

async fn work(context: &Context, state: &mut Scheduler, queue: &mut Queue<String>, told: &Events) {
    let now = Timestamp::now();
    let mut writes = Vec::new();
    for key in queue.take_due() {
        if let Some((plan, again)) = state.schedule(&key, now) {
            if let Some(again) = again {
                // A little later than the very moment, so that it has passed.
                queue.push_after(key.clone(), again + Duration::from_millis(50));
            }
            writes.push((key, plan));
        }
    }
    let this = &*state;
    let results: Vec<_> = stream::iter(writes)
        .map(|(key, plan)| async move {
            let result = write(context, this, &key, &plan, now).await;
            (key, result)
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await;
    for (key, result) in results {
        match result {
            Ok(again) => {
                queue.done(&key);
                if let Some(again) = again {
                    queue.push_after(key, again + Duration::from_millis(50));
                }
            }
            Err(error) => {
                let about = state.placement(&key).map(|placement| placement.object_ref(&()));
                will_try_again(&key, &error, told, about).await;
                state.look_anew(&key);
                queue.failed(key);
            }
        }
    }
}

/// What is to be written for one placement.
pub enum Wanted {
    /// The decisions, and the conditions.
    Scheduled(Outcome, Vec<condition::Wanted>),
    /// Some clusters came or went, in these objects; the others stay as they are.
    Changed {
        /// The objects that change.
        objects: Vec<DecisionObject>,
        /// The names of the objects that lost their last cluster.
        gone: Vec<String>,
        /// The group, as the status tells it.
        group: DecisionGroupStatus,
        /// The conditions.
        conditions: Vec<condition::Wanted>,
    },
    /// The placement cannot be understood: its decisions stay.
    Misconfigured(String),
}

async fn write(
    context: &Context,
    state: &Scheduler,
    key: &str,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Option<Duration>, Error> {
    let Some(placement) = state.placement(key) else {
        return Ok(None);
    };
    let mut again = None;
    let namespace = placement.namespace().unwrap_or_default();
    let placements: Api<Placement> = write::namespaced(&context.client, &namespace);
    let generation = placement.metadata.generation;
    let mut status = placement.status.clone().unwrap_or_default();
    match wanted {
        Wanted::Changed { .. } => {}
        Wanted::Misconfigured(why) => {
            condition::set(&mut status.conditions, &plan::misconfigured(why), generation, now);
        }
        Wanted::Scheduled(outcome, conditions) => {
            again = held_back(state, placement, outcome, &mut status, now);
            if again.is_none() {
                write_decisions(context, state, placement, outcome).await?;
            }
            for wanted in conditions {
                condition::set(&mut status.conditions, wanted, generation, now);
            }
            status = PlacementStatus {
                number_of_selected_clusters: i32::try_from(outcome.selected).unwrap_or(i32::MAX),
                decision_groups: plan::group_status(&placement.name_any(), &outcome.objects),
                ..status
            };
        }
    }
    if let Wanted::Changed {
        objects,
        gone,
        group,
        conditions,
    } = wanted
    {
        let outcome = Outcome {
            objects: objects.clone(),
            ..Outcome::default()
        };
        write_objects(context, state, placement, &outcome).await?;
        let api: Api<PlacementDecision> = write::namespaced(&context.client, &namespace);
        for decision in gone.iter().filter_map(|name| state.decision(&namespace, name)) {
            write::delete(&api, &decision.name_any(), decision.uid().as_deref()).await?;
        }
        for wanted in conditions {
            condition::set(&mut status.conditions, wanted, generation, now);
        }
        status.number_of_selected_clusters = group.cluster_count;
        status.decision_groups = vec![group.clone()];
    }
    debug_assert!(condition::find(&status.conditions, CONDITION_MISCONFIGURED).is_some());
    write::ensure_status(&placements, placement, &status, MANAGER).await?;
    Ok(again)
}

/// For how long the decisions stay as they are because only scores differ; notes in the status when they do change.
fn held_back(
    state: &Scheduler,
    placement: &Placement,
    outcome: &Outcome,
    status: &mut PlacementStatus,
    now: Timestamp,
) -> Option<Duration> {
    if placement.spec.sort_by != Some(SortBy::Score) {
        return None;
    }
    let (namespace, name) = (placement.namespace().unwrap_or_default(), placement.name_any());
    let wanted: Vec<(String, Vec<ClusterDecision>)> = outcome
        .objects
        .iter()
        .map(|object| {
            (
                plan::decision_name(&name, object.slot),
                decisions(object, outcome, true),
            )
        })
        .collect();
    let wanted = wanted
        .iter()
        .map(|(name, d)| (name.clone(), d.as_slice()))
        .collect();
    let current = state
        .decisions_of(&namespace, &name)
        .map(|d| {
            (
                d.name_any(),
                d.status
                    .as_ref()
                    .map(|s| s.decisions.as_slice())
                    .unwrap_or_default(),
            )
        })
        .collect();
    if !score_rate_limit::only_scores_differ(&current, &wanted) {
        return None;
    }
    let limit = score_rate_limit::limit(placement.spec.score_rate_limit.as_deref()).unwrap_or_default();
    let left = score_rate_limit::wait(status.last_score_update_time.as_deref(), limit, now);
    if left.is_none() {
        status.last_score_update_time = Some(crate::admission::managed_cluster::seconds(now));
    }
    left
}

/// Writes the decision objects: first what gains clusters, then what only loses some, then what goes.
async fn write_decisions(
    context: &Context,
    state: &Scheduler,
    placement: &Placement,
    outcome: &Outcome,
) -> Result<(), Error> {
    write_objects(context, state, placement, outcome).await?;
    let namespace = placement.namespace().unwrap_or_default();
    let name = placement.name_any();
    let api: Api<PlacementDecision> = write::namespaced(&context.client, &namespace);
    for decision in state.decisions_of(&namespace, &name) {
        let wanted = outcome
            .objects
            .iter()
            .any(|object| plan::decision_name(&name, object.slot) == decision.name_any());
        if !wanted {
            write::delete(&api, &decision.name_any(), decision.uid().as_deref()).await?;
        }
    }
    Ok(())
}

/// Writes these objects and leaves all others alone.
async fn write_objects(
    context: &Context,
    state: &Scheduler,
    placement: &Placement,
    outcome: &Outcome,
) -> Result<(), Error> {
    let namespace = placement.namespace().unwrap_or_default();
    let name = placement.name_any();
    let api: Api<PlacementDecision> = write::namespaced(&context.client, &namespace);
    let by_score = placement.spec.sort_by == Some(SortBy::Score);
    let mut changes = Vec::new();
    for object in &outcome.objects {
        let wanted = decision(placement, object);
        let there = state
            .decision(&namespace, &wanted.name_any())
            .filter(|d| d.labels().get(PLACEMENT_LABEL) == Some(&name));
        let status = PlacementDecisionStatus {
            decisions: decisions(object, outcome, by_score),
        };
        let known = there
            .and_then(|d| d.status.as_ref())
            .map(|s| s.decisions.as_slice())
            .unwrap_or_default();
        let known: BTreeSet<&str> = known.iter().map(|k| k.cluster_name.as_str()).collect();
        let gains = status
            .decisions
            .iter()
            .any(|d| !known.contains(d.cluster_name.as_str()));
        changes.push((!gains, wanted, there, status));
    }
    changes.sort_by_key(|(loses, ..)| *loses);
    for (_, wanted, there, status) in &changes {
        let made = match there {
            Some(there) => {
                write::ensure(&api, Some(there), wanted, MANAGER).await?;
                (*there).clone()
            }
            None => match api.create(&PostParams::default(), wanted).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let made = api
                        .get(&wanted.name_any())
                        .await
                        .context(|| format!("read PlacementDecision {namespace}/{}", wanted.name_any()))?;
                    // Without our label nobody would find the decisions in it.
                    write::ensure(&api, Some(&made), wanted, MANAGER).await?;
                    made
                }
                answer => answer
                    .context(|| format!("create PlacementDecision {namespace}/{}", wanted.name_any()))?,
            },
        };
        write::ensure_status(&api, &made, status, MANAGER).await?;
    }
    Ok(())
}

fn decision(placement: &Placement, object: &DecisionObject) -> PlacementDecision {
    let name = placement.name_any();
    PlacementDecision {
        metadata: ObjectMeta {
            name: Some(plan::decision_name(&name, object.slot)),
            namespace: placement.namespace(),
            labels: Some(
                [
                    (PLACEMENT_LABEL, name),
                    (GROUP_INDEX_LABEL, object.group.to_string()),
                    (GROUP_NAME_LABEL, object.group_name.clone()),
                ]
                .map(|(key, value)| (key.to_owned(), value))
                .into(),
            ),
            owner_references: placement.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..PlacementDecision::default()
    }
}

fn decisions(object: &DecisionObject, outcome: &Outcome, by_score: bool) -> Vec<ClusterDecision> {
    let mut decisions: Vec<ClusterDecision> = object
        .clusters
        .iter()
        .map(|cluster| ClusterDecision {
            cluster_name: cluster.clone(),
            reason: String::new(),
            score: outcome.scores.get(cluster).copied().filter(|_| by_score),
        })
        .collect();
    if by_score {
        decisions.sort_by(|a, b| {
            b.score
                .cmp(&a.score)
                .then_with(|| a.cluster_name.cmp(&b.cluster_name))
        });
    }
    decisions
}

/// A score of an add-on, if it is there and not too old.
pub(super) fn score_in(object: &AddOnPlacementScore, name: &str, now: Timestamp) -> Option<i64> {
    if cluster_view::remaining(object, now).is_some_and(|left| left.is_zero()) {
        return None;
    }
    let status = object.status.as_ref()?;
    let score = status.scores.iter().find(|score| score.name == name)?;
    Some(i64::from(score.value))
}
