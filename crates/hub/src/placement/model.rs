//! The types of placement: what a cluster's verdict is, where clusters are written, what is to be written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use writ_api::cluster::{Placement, PlacementDecision, placement::DecisionGroupStatus};
use writ_controller::condition;

/// Whether a cluster qualifies for a placement; kept until the cluster or the placement changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The reason why the cluster does not qualify, if it does not.
    pub refusal: Option<String>,
    /// How many of its taints have the effect `PreferNoSelect` and are not tolerated.
    pub disliked: usize,
    /// How long the verdict holds: until a toleration or a score ends.
    pub until: Option<Duration>,
}

/// Where a chosen cluster is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The number of the decision object.
    pub slot: usize,
    /// The number of the group.
    pub group: usize,
    /// The name of the group, empty if it has none.
    pub group_name: String,
}

/// A PlacementDecision as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionObject {
    /// Its number, which is part of its name and never changes.
    pub slot: usize,
    /// The number of its group.
    pub group: usize,
    /// The name of its group, empty if it has none.
    pub group_name: String,
    /// Its clusters, sorted by name.
    pub clusters: Vec<String>,
}

/// What the choice depends on besides the candidates.
pub struct Surroundings<'a> {
    /// Where each chosen cluster is written now.
    pub before: &'a BTreeMap<String, Location>,
    /// How many other placements chose the cluster.
    pub chosen_elsewhere: &'a dyn Fn(&str) -> usize,
    /// A score of an add-on for the cluster (cluster, resource, score), unless it has expired.
    pub add_on_score: &'a dyn Fn(&str, &str, &str) -> Option<i64>,
}

/// The result of scheduling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The decision objects.
    pub objects: Vec<DecisionObject>,
    /// The score of each cluster that was ranked.
    pub scores: BTreeMap<String, i64>,
    /// The reason for every candidate that was not chosen.
    pub left_out: BTreeMap<String, String>,
    /// How many clusters are chosen.
    pub selected: usize,
    /// How many clusters qualify.
    pub feasible: usize,
}

/// Why a placement has no candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCandidates {
    /// No set is bound to the namespace.
    NoBindings,
    /// None of these sets, which the placement names, is bound.
    NoIntersection(Vec<String>),
    /// The bound sets, by name, have no members.
    Empty(Vec<String>),
}

impl NoCandidates {
    /// The reason, if there are no candidates. `bound` are the sets bound to the namespace, `asked` those that the
    /// placement names, `sets` those in both.
    pub fn of(
        bound: &BTreeSet<String>,
        asked: &[String],
        sets: &BTreeSet<String>,
        candidates: usize,
    ) -> Option<Self> {
        if bound.is_empty() {
            Some(Self::NoBindings)
        } else if sets.is_empty() {
            Some(Self::NoIntersection(asked.to_vec()))
        } else if candidates == 0 {
            Some(Self::Empty(sets.iter().cloned().collect()))
        } else {
            None
        }
    }
}

/// What is to be written for one placement.
pub enum Planned {
    /// All decisions, and the conditions.
    Scheduled(Outcome, Vec<condition::Wanted>),
    /// Some clusters came or went, in these objects; all others stay as they are.
    Changed {
        /// The objects that change.
        objects: Vec<DecisionObject>,
        /// The names of the objects that lost their last cluster.
        gone: Vec<String>,
        /// The group, as the status reports it.
        group: DecisionGroupStatus,
        /// The conditions.
        conditions: Vec<condition::Wanted>,
    },
    /// The placement is invalid, for this reason: its decisions stay.
    Misconfigured(String),
}

/// The plan of one placement, with the objects that it was made for.
pub struct Schedule {
    /// The placement.
    pub placement: Arc<Placement>,
    /// Its stored decisions.
    pub decisions: Vec<Arc<PlacementDecision>>,
    /// What is to be written.
    pub planned: Planned,
    /// When the plan changes by time alone.
    pub until: Option<Duration>,
}
