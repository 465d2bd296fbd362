//! Writes what was planned for a placement: its decision objects, then its status.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use writ_api::cluster::{
    Placement, PlacementDecision,
    placement::{CONDITION_MISCONFIGURED, PlacementStatus, SortBy},
    placement_decision::{
        ClusterDecision, GROUP_INDEX_LABEL, GROUP_NAME_LABEL, PLACEMENT_LABEL, PlacementDecisionStatus,
    },
};
use writ_controller::{Error, condition, error::Context as _, write};

use super::{
    model::{DecisionObject, Outcome, Planned, Schedule},
    plan::{self, score_rate_limit},
};
use crate::MANAGER;

/// Writes what was planned. Returns the delay after which scores may be written, if they are held back.
pub async fn apply(client: &Client, schedule: &Schedule, now: Timestamp) -> Result<Option<Duration>, Error> {
    let placement = &*schedule.placement;
    let (namespace, name) = (placement.namespace().unwrap_or_default(), placement.name_any());
    let decisions: Api<PlacementDecision> = write::namespaced(client, &namespace);
    let generation = placement.metadata.generation;
    let mut status = placement.status.clone().unwrap_or_default();
    let mut held_back = None;
    match &schedule.planned {
        Planned::Misconfigured(why) => {
            condition::set(&mut status.conditions, &plan::misconfigured(why), generation, now);
        }
        Planned::Scheduled(outcome, conditions) => {
            held_back = hold_back_scores(schedule, outcome, &mut status, now);
            if held_back.is_none() {
                write_objects(&decisions, schedule, &outcome.objects, &outcome.scores).await?;
                let wanted: BTreeSet<String> = outcome
                    .objects
                    .iter()
                    .map(|object| plan::decision_name(&name, object.slot))
                    .collect();
                delete(&decisions, schedule, |name| !wanted.contains(name)).await?;
            }
            for wanted in conditions {
                condition::set(&mut status.conditions, wanted, generation, now);
            }
            status.number_of_selected_clusters = i32::try_from(outcome.selected).unwrap_or(i32::MAX);
            status.decision_groups = plan::group_status(&name, &outcome.objects);
        }
        Planned::Changed {
            objects,
            gone,
            group,
            conditions,
        } => {
            write_objects(&decisions, schedule, objects, &BTreeMap::new()).await?;
            delete(&decisions, schedule, |name| gone.iter().any(|gone| gone == name)).await?;
            for wanted in conditions {
                condition::set(&mut status.conditions, wanted, generation, now);
            }
            status.number_of_selected_clusters = group.cluster_count;
            status.decision_groups = vec![group.clone()];
        }
    }
    debug_assert!(condition::find(&status.conditions, CONDITION_MISCONFIGURED).is_some());
    let placements: Api<Placement> = write::namespaced(client, &namespace);
    write::ensure_status(&placements, placement, &status, MANAGER).await?;
    Ok(held_back)
}

/// How long the decisions stay as they are because only scores differ. If they may be written, the status records when.
fn hold_back_scores(
    schedule: &Schedule,
    outcome: &Outcome,
    status: &mut PlacementStatus,
    now: Timestamp,
) -> Option<Duration> {
    let placement = &*schedule.placement;
    if placement.spec.sort_by != Some(SortBy::Score) {
        return None;
    }
    let name = placement.name_any();
    let wanted: Vec<(String, Vec<ClusterDecision>)> = outcome
        .objects
        .iter()
        .map(|object| {
            let decisions = cluster_decisions(object, &outcome.scores, true);
            (plan::decision_name(&name, object.slot), decisions)
        })
        .collect();
    let wanted = wanted
        .iter()
        .map(|(name, decisions)| (name.clone(), decisions.as_slice()))
        .collect();
    let current = schedule
        .decisions
        .iter()
        .map(|decision| (decision.name_any(), decisions_in(decision)))
        .collect();
    if !score_rate_limit::only_scores_differ(&current, &wanted) {
        return None;
    }
    let limit = score_rate_limit::limit(placement.spec.score_rate_limit.as_deref()).unwrap_or_default();
    let remaining = score_rate_limit::wait(status.last_score_update_time.as_deref(), limit, now);
    if remaining.is_none() {
        status.last_score_update_time = Some(format!("{now:.0}"));
    }
    remaining
}

/// Writes these objects and leaves all others alone. Objects that gain clusters come first: a cluster that moves between
/// objects is in both for a moment, rather than in none.
async fn write_objects(
    api: &Api<PlacementDecision>,
    schedule: &Schedule,
    objects: &[DecisionObject],
    scores: &BTreeMap<String, i64>,
) -> Result<(), Error> {
    let by_score = schedule.placement.spec.sort_by == Some(SortBy::Score);
    let mut changes = Vec::new();
    for object in objects {
        let wanted = decision(&schedule.placement, object);
        let name = wanted.name_any();
        let current = schedule
            .decisions
            .iter()
            .find(|decision| decision.name_any() == name);
        let decisions = cluster_decisions(object, scores, by_score);
        let known: BTreeSet<&str> = current
            .iter()
            .flat_map(|decision| decisions_in(decision))
            .map(|decision| decision.cluster_name.as_str())
            .collect();
        let gains = decisions
            .iter()
            .any(|decision| !known.contains(decision.cluster_name.as_str()));
        changes.push((!gains, wanted, current, PlacementDecisionStatus { decisions }));
    }
    changes.sort_by_key(|(loses, ..)| *loses);
    for (_, wanted, current, status) in &changes {
        if let Some(current) = current {
            write::ensure(api, Some(&**current), wanted, MANAGER).await?;
            write::ensure_status(api, &**current, status, MANAGER).await?;
        } else {
            let created = create(api, wanted).await?;
            write::ensure_status(api, &created, status, MANAGER).await?;
        }
    }
    Ok(())
}

/// Creates a decision object, or takes over one of that name. Without our label it would not be found by its readers.
async fn create(
    api: &Api<PlacementDecision>,
    wanted: &PlacementDecision,
) -> Result<PlacementDecision, Error> {
    let what = || {
        let namespace = wanted.namespace().unwrap_or_default();
        format!("PlacementDecision {namespace}/{}", wanted.name_any())
    };
    match api.create(&PostParams::default(), wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let current = api
                .get(&wanted.name_any())
                .await
                .context(|| format!("read {}", what()))?;
            write::ensure(api, Some(&current), wanted, MANAGER).await?;
            Ok(current)
        }
        answer => answer.context(|| format!("create {}", what())),
    }
}

async fn delete(
    api: &Api<PlacementDecision>,
    schedule: &Schedule,
    is_gone: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    for decision in schedule
        .decisions
        .iter()
        .filter(|decision| is_gone(&decision.name_any()))
    {
        write::delete(api, &decision.name_any(), decision.uid().as_deref()).await?;
    }
    Ok(())
}

/// A decision object of a placement, without its clusters.
pub fn decision(placement: &Placement, object: &DecisionObject) -> PlacementDecision {
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

fn decisions_in(decision: &PlacementDecision) -> &[ClusterDecision] {
    decision
        .status
        .as_ref()
        .map(|status| status.decisions.as_slice())
        .unwrap_or_default()
}

fn cluster_decisions(
    object: &DecisionObject,
    scores: &BTreeMap<String, i64>,
    by_score: bool,
) -> Vec<ClusterDecision> {
    let mut decisions: Vec<ClusterDecision> = object
        .clusters
        .iter()
        .map(|cluster| ClusterDecision {
            cluster_name: cluster.clone(),
            reason: String::new(),
            score: scores.get(cluster).copied().filter(|_| by_score),
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
