//! Pure: which clusters a placement chooses, and in which decision objects they are written.
//!
//! Candidates → [`predicates`] and [`taints`] (a verdict each) → [`prioritizers`] and [`spread`] (a choice) →
//! [`groups`] (decision objects) → conditions.

pub mod groups;
pub mod predicates;
pub mod prioritizers;
pub mod score_rate_limit;
pub mod spread;
pub mod taints;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::cluster::{
    PlacementDecision,
    placement::{
        CONDITION_MISCONFIGURED, CONDITION_SATISFIED, DecisionGroupStatus, PlacementSpec, SpreadConstraint,
        Toleration,
    },
    placement_decision::{GROUP_INDEX_LABEL, GROUP_NAME_LABEL},
};
use writ_controller::condition::Wanted;

use self::{groups::Groups, predicates::Predicates, prioritizers::Source};
use super::{
    cluster_view::{AddOnScores, ClusterView},
    model::{DecisionObject, Location, NoCandidates, Outcome, Surroundings, Verdict},
};

/// A valid placement, ready to be scheduled.
pub struct Compiled {
    predicates: Predicates,
    tolerations: Vec<Toleration>,
    weights: BTreeMap<Source, i64>,
    constraints: Vec<SpreadConstraint>,
    groups: Groups,
    wanted: Option<usize>,
}

impl Compiled {
    /// Reads a placement; the error names the field that is invalid.
    pub fn of(spec: &PlacementSpec) -> Result<Self, String> {
        taints::validate(&spec.tolerations)?;
        score_rate_limit::limit(spec.score_rate_limit.as_deref())?;
        let wanted = match spec.number_of_clusters {
            None => None,
            Some(number) => Some(
                usize::try_from(number)
                    .map_err(|_| format!("spec.numberOfClusters: {number} is negative"))?,
            ),
        };
        Ok(Self {
            predicates: Predicates::compile(spec)?,
            tolerations: spec.tolerations.clone(),
            weights: prioritizers::weights(spec)?,
            constraints: spec
                .spread_policy
                .as_ref()
                .map(|p| p.spread_constraints.clone())
                .unwrap_or_default(),
            groups: Groups::compile(spec)?,
            wanted,
        })
    }

    /// The verdict on one candidate. `chosen` is whether the placement has chosen it already; `scores` is called only if
    /// an expression uses scores.
    pub fn judge(
        &self,
        cluster: &ClusterView,
        chosen: bool,
        now: Timestamp,
        scores: impl FnOnce(&str) -> AddOnScores,
    ) -> Verdict {
        // The bootstrap identity may create clusters, so a cluster counts only once it is accepted.
        let out = if cluster.deleting {
            Some("it is being deleted")
        } else if cluster.object.spec.hub_accepts_client {
            None
        } else {
            Some("it is not accepted")
        };
        if let Some(reason) = out {
            return Verdict {
                refusal: Some(reason.into()),
                ..Verdict::default()
            };
        }
        let scores = if self.asks_for_scores() {
            scores(&cluster.name)
        } else {
            AddOnScores::default()
        };
        let mut verdict = match self.predicates.check(cluster, &scores) {
            Ok(()) => taints::judge(cluster, &self.tolerations, chosen, now),
            Err(reason) => Verdict {
                refusal: Some(reason),
                ..Verdict::default()
            },
        };
        verdict.until = verdict.until.into_iter().chain(scores.until).min();
        verdict
    }

    /// Whether the verdict on a cluster depends on the scores of add-ons.
    pub fn asks_for_scores(&self) -> bool {
        self.predicates.ask_for_scores()
    }

    /// Chooses among the candidates, and divides the chosen clusters into decision objects.
    pub fn schedule(&self, candidates: &[(&ClusterView, &Verdict)], around: &Surroundings) -> Outcome {
        let mut outcome = Outcome::default();
        let mut eligible: Vec<(&ClusterView, usize)> = Vec::new();
        for (cluster, verdict) in candidates {
            match &verdict.refusal {
                Some(reason) => {
                    outcome.left_out.insert(cluster.name.clone(), reason.clone());
                }
                None => eligible.push((cluster, verdict.disliked)),
            }
        }
        outcome.feasible = eligible.len();
        let wanted = self.wanted.unwrap_or(eligible.len());
        let chosen: Vec<&ClusterView> = if wanted >= eligible.len() && self.constraints.is_empty() {
            eligible.into_iter().map(|(cluster, _)| cluster).collect()
        } else {
            self.choose(&eligible, wanted, around, &mut outcome)
        };
        outcome.selected = chosen.len();
        outcome.objects = self.groups.divide(&chosen, around.before);
        outcome
    }

    fn choose<'a>(
        &self,
        eligible: &[(&'a ClusterView, usize)],
        wanted: usize,
        around: &Surroundings,
        outcome: &mut Outcome,
    ) -> Vec<&'a ClusterView> {
        let scores = self.scores(eligible, around);
        let mut ranked: Vec<(usize, Reverse<i64>, &ClusterView)> = eligible
            .iter()
            .zip(&scores)
            .map(|((cluster, disliked), score)| (*disliked, Reverse(*score), *cluster))
            .collect();
        ranked.sort_by(|a, b| (a.0, a.1, &a.2.name).cmp(&(b.0, b.1, &b.2.name)));
        let order: Vec<&ClusterView> = ranked.iter().map(|(_, _, cluster)| *cluster).collect();
        for (_, Reverse(score), cluster) in &ranked {
            outcome.scores.insert(cluster.name.clone(), *score);
        }
        let (chosen, kept_out) = spread::choose(&order, &self.constraints, wanted);
        let kept_out: BTreeSet<usize> = kept_out.into_iter().collect();
        let taken: BTreeSet<usize> = chosen.iter().copied().collect();
        for (index, (disliked, Reverse(score), cluster)) in ranked.iter().enumerate() {
            if taken.contains(&index) {
                continue;
            }
            let reason = if kept_out.contains(&index) {
                "a spread constraint keeps it out".to_owned()
            } else if *disliked > 0 {
                format!("others come first: {disliked} of its taints have the effect PreferNoSelect")
            } else {
                format!("{wanted} clusters are wanted and others come first; its score is {score}")
            };
            outcome.left_out.insert(cluster.name.clone(), reason);
        }
        chosen
            .into_iter()
            .filter_map(|index| order.get(index).copied())
            .collect()
    }

    fn scores(&self, eligible: &[(&ClusterView, usize)], around: &Surroundings) -> Vec<i64> {
        let mut sums = vec![0_i64; eligible.len()];
        for (source, weight) in &self.weights {
            let scores: Vec<i64> = match source {
                Source::Balance => {
                    let counts: Vec<usize> = eligible
                        .iter()
                        .map(|(c, _)| (around.chosen_elsewhere)(&c.name))
                        .collect();
                    prioritizers::balance(&counts)
                }
                Source::Steady => eligible
                    .iter()
                    .map(|(c, _)| {
                        if around.before.contains_key(&c.name) {
                            100
                        } else {
                            0
                        }
                    })
                    .collect(),
                Source::Cpu => {
                    prioritizers::normalize(&eligible.iter().map(|(c, _)| c.cpu).collect::<Vec<_>>())
                }
                Source::Memory => {
                    prioritizers::normalize(&eligible.iter().map(|(c, _)| c.memory).collect::<Vec<_>>())
                }
                Source::AddOn(resource, name) => eligible
                    .iter()
                    .map(|(c, _)| (around.add_on_score)(&c.name, resource, name).unwrap_or(0))
                    .collect(),
            };
            for (sum, score) in sums.iter_mut().zip(scores) {
                *sum = sum.saturating_add(weight.saturating_mul(score));
            }
        }
        sums
    }

    /// Whether every cluster that qualifies is chosen, into one group. Then each cluster can be decided on its own.
    pub fn is_plain(&self) -> bool {
        self.wanted.is_none() && self.constraints.is_empty() && self.groups.is_one()
    }

    /// Whether two states of a cluster with the same verdict can lead to different choices.
    pub fn tells_apart(&self, old: &ClusterView, new: &ClusterView) -> bool {
        let topology = |cluster| -> Vec<Option<String>> {
            let values = self.constraints.iter().map(|c| spread::topology(cluster, c));
            values.map(|value| value.map(str::to_owned)).collect()
        };
        let ranked = self.wanted.is_some() || !self.constraints.is_empty();
        (ranked && self.weights.contains_key(&Source::Cpu) && old.cpu != new.cpu)
            || (ranked && self.weights.contains_key(&Source::Memory) && old.memory != new.memory)
            || (!self.constraints.is_empty() && topology(old) != topology(new))
            || self.groups.group_of(old) != self.groups.group_of(new)
    }

    /// Whether the choice weighs a score of this object.
    pub fn weighs(&self, resource: &str) -> bool {
        self.add_ons().any(|name| name == resource)
    }

    /// The score objects that the choice weighs.
    pub fn add_ons(&self) -> impl Iterator<Item = &str> {
        self.weights.keys().filter_map(|source| match source {
            Source::AddOn(resource, _) => Some(resource.as_str()),
            _ => None,
        })
    }

    /// The conditions of a placement that was scheduled.
    pub fn conditions(&self, selected: usize, feasible: usize, none: Option<&NoCandidates>) -> Vec<Wanted> {
        let satisfied = |holds: bool, reason: &str, message: String| {
            Wanted::new(CONDITION_SATISFIED, holds, reason, message)
        };
        let missing = self.wanted.map_or(0, |wanted| wanted.saturating_sub(selected));
        let state = match none {
            Some(NoCandidates::NoBindings) => satisfied(
                false,
                "NoManagedClusterSetBindings",
                "No valid ManagedClusterSetBindings found in placement namespace".into(),
            ),
            Some(NoCandidates::NoIntersection(sets)) => satisfied(
                false,
                "NoIntersection",
                format!(
                    "None of ManagedClusterSets [{}] is bound to placement namespace",
                    sets.join(",")
                ),
            ),
            Some(NoCandidates::Empty(sets)) => satisfied(
                false,
                "AllManagedClusterSetsEmpty",
                format!(
                    "All ManagedClusterSets [{}] have no member ManagedCluster",
                    sets.join(",")
                ),
            ),
            None if feasible == 0 => satisfied(
                false,
                "NoManagedClusterMatched",
                "No ManagedCluster matches any of the cluster predicate".into(),
            ),
            None if missing > 0 => satisfied(
                false,
                "NotAllDecisionsScheduled",
                format!("{missing} cluster decisions unscheduled"),
            ),
            None => satisfied(
                true,
                "AllDecisionsScheduled",
                "All cluster decisions scheduled".into(),
            ),
        };
        vec![
            state,
            Wanted::new(
                CONDITION_MISCONFIGURED,
                false,
                "Succeedconfigured",
                "Placement configurations check pass",
            ),
        ]
    }
}

/// The condition of an invalid placement. Its decisions stay.
pub fn misconfigured(why: &str) -> Wanted {
    Wanted::new(
        CONDITION_MISCONFIGURED,
        true,
        "Misconfigured",
        format!("{why}; the decisions stay as they were"),
    )
}

/// The groups, as the status reports them.
pub fn group_status(placement: &str, objects: &[DecisionObject]) -> Vec<DecisionGroupStatus> {
    let mut groups: BTreeMap<usize, DecisionGroupStatus> = BTreeMap::new();
    for object in objects {
        let group = groups.entry(object.group).or_insert_with(|| DecisionGroupStatus {
            decision_group_index: i32::try_from(object.group).unwrap_or(i32::MAX),
            decision_group_name: object.group_name.clone(),
            ..DecisionGroupStatus::default()
        });
        group.decisions.push(decision_name(placement, object.slot));
        group.cluster_count += i32::try_from(object.clusters.len()).unwrap_or(i32::MAX);
    }
    groups.into_values().collect()
}

/// Where the clusters of a placement are written: `decisions` are its objects.
pub fn locations<'a>(
    placement: &str,
    decisions: impl Iterator<Item = &'a PlacementDecision>,
) -> BTreeMap<String, Location> {
    let mut locations = BTreeMap::new();
    for decision in decisions {
        let (Some(slot), Some(status)) = (slot_of(placement, &decision.name_any()), &decision.status) else {
            continue;
        };
        let label = |key: &str| decision.labels().get(key).map(String::as_str).unwrap_or_default();
        let location = Location {
            slot,
            group: label(GROUP_INDEX_LABEL).parse().unwrap_or_default(),
            group_name: label(GROUP_NAME_LABEL).to_owned(),
        };
        let clusters = status.decisions.iter().map(|d| d.cluster_name.clone());
        locations.extend(clusters.map(|cluster| (cluster, location.clone())));
    }
    locations
}

/// The name of a decision object.
pub fn decision_name(placement: &str, slot: usize) -> String {
    format!("{placement}-decision-{}", slot + 1)
}

/// The number of a decision object of this placement, from its name.
pub fn slot_of(placement: &str, name: &str) -> Option<usize> {
    let number: usize = name
        .strip_prefix(placement)?
        .strip_prefix("-decision-")?
        .parse()
        .ok()?;
    number.checked_sub(1)
}
