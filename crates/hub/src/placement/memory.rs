//! What is remembered of a placement between two plans, so that a change of one cluster costs one verdict.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use writ_api::cluster::{AddOnPlacementScore, PlacementDecision};
use writ_controller::Name;

use super::{
    cluster_view::ClusterView,
    decision_objects::DecisionObjects,
    decisions_index::placement_of,
    model::Verdict,
    observe::{Objects, scores_of},
    plan::{Compiled, slot_of},
};

/// What is remembered of a placement.
pub struct PlacementMemory {
    /// The placement as it was read, or why it is invalid.
    pub compiled: Result<Compiled, String>,
    /// The sets that it chooses from.
    pub sets: BTreeSet<String>,
    /// The verdict on every candidate.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Where the clusters of a plain placement are written; `None` if that has to be planned anew.
    pub layout: Option<DecisionObjects>,
    /// The clusters whose verdict changed since the last plan.
    pub moved: BTreeSet<String>,
    /// The clusters whose verdict ends at some time.
    timed: BTreeSet<String>,
}

impl PlacementMemory {
    /// Nothing is judged yet.
    pub fn new(compiled: Result<Compiled, String>, sets: BTreeSet<String>) -> Self {
        Self {
            compiled,
            sets,
            verdicts: BTreeMap::new(),
            layout: None,
            moved: BTreeSet::new(),
            timed: BTreeSet::new(),
        }
    }

    /// The verdict on a cluster; `None` if the placement is invalid. `chosen` is whether it has chosen the cluster already.
    pub fn judge(
        &self,
        cluster: &ClusterView,
        chosen: bool,
        scores: &Objects<AddOnPlacementScore>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let compiled = self.compiled.as_ref().ok()?;
        Some(compiled.judge(cluster, chosen, now, |cluster| scores_of(scores, cluster, now)))
    }

    /// Records a verdict, or that the cluster is not a candidate any more.
    pub fn record(&mut self, cluster: &str, verdict: Option<Verdict>) {
        if verdict.as_ref().is_some_and(|v| v.until.is_some()) {
            self.timed.insert(cluster.to_owned());
        } else {
            self.timed.remove(cluster);
        }
        match verdict {
            Some(verdict) => self.verdicts.insert(cluster.to_owned(), verdict),
            None => self.verdicts.remove(cluster),
        };
        self.moved.insert(cluster.to_owned());
    }

    /// The clusters whose verdict ends at some time.
    pub fn timed(&self) -> Vec<String> {
        self.timed.iter().cloned().collect()
    }

    /// When the first verdict ends.
    pub fn first_end(&self) -> Option<Duration> {
        let ends = self
            .timed
            .iter()
            .filter_map(|cluster| self.verdicts.get(cluster)?.until);
        ends.min()
    }

    /// Whether a stored decision is as planned, or is gone as planned.
    pub fn is_as_planned(&self, placement: &Name, name: &Name, decision: Option<&PlacementDecision>) -> bool {
        let slot = slot_of(&placement.name, &name.name);
        let (Some(layout), Some(slot)) = (&self.layout, slot) else {
            return false;
        };
        let Some(decision) = decision else {
            return !layout.has(slot);
        };
        // Without its label the decision is not found by its readers.
        if placement_of(decision).as_ref() != Some(placement) {
            return false;
        }
        let decisions = decision.status.as_ref().map(|s| s.decisions.as_slice());
        decisions
            .is_some_and(|decisions| layout.holds(slot, decisions.iter().map(|d| d.cluster_name.as_str())))
    }
}
