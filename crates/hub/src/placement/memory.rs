//! What is kept of a placement between two looks at it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use writ_api::cluster::{AddOnPlacementScore, PlacementDecision};
use writ_controller::watching::Mirror;

use super::chosen::placement_of;
use crate::placement::{
    cluster_view::{ClusterView, AddOnScores},
    layout::DecisionObjects,
    plan::{Compiled, Verdict, slot_of},
};

/// What is kept of a placement between two looks.
pub(super) struct PlacementMemory {
    pub(super) compiled: Result<Compiled, String>,
    /// The sets that it chooses from.
    pub(super) sets: BTreeSet<String>,
    /// The verdict on every candidate.
    pub(super) verdicts: BTreeMap<String, Verdict>,
    /// Where the clusters of a plain placement are, as far as it is known.
    pub(super) layout: Option<DecisionObjects>,
    /// The clusters whose verdict changed since.
    pub(super) moved: BTreeSet<String>,
    /// The clusters whose verdict ends with time.
    pub(super) timed: BTreeSet<String>,
}

impl PlacementMemory {
    /// Judges a cluster; `None` if the placement cannot be understood. `chosen` is whether it has the cluster already.
    pub(super) fn judge(
        &self,
        facts: &ClusterView,
        chosen: bool,
        scores: &Mirror<AddOnPlacementScore>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let compiled = self.compiled.as_ref().ok()?;
        Some(compiled.judge(facts, chosen, now, |cluster| {
            AddOnScores::of(scores.in_namespace(cluster), now)
        }))
    }

    /// Notes a verdict, or that the cluster is no candidate any more.
    pub(super) fn note(&mut self, cluster: &str, verdict: Option<Verdict>) {
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

    /// When the first of the verdicts ends.
    pub(super) fn ends(&self) -> Option<Duration> {
        let ends = self
            .timed
            .iter()
            .filter_map(|cluster| self.verdicts.get(cluster)?.until);
        ends.min()
    }

    /// Whether a decision object, both by `namespace/name`, is what the scheduler laid out, or is gone as it should.
    pub(super) fn is_as_laid_out(
        &self,
        placement: &str,
        key: &str,
        decision: Option<&PlacementDecision>,
    ) -> bool {
        let name = |key: &str| key.split_once('/').map(|(_, name)| name.to_owned());
        let slot = name(placement)
            .zip(name(key))
            .and_then(|(placement, name)| slot_of(&placement, &name));
        let (Some(layout), Some(slot)) = (&self.layout, slot) else {
            return false;
        };
        let Some(decision) = decision else {
            return !layout.has(slot);
        };
        // Without its label nobody finds it.
        if placement_of(decision).as_deref() != Some(placement) {
            return false;
        }
        let decisions = decision.status.as_ref().map(|s| s.decisions.as_slice());
        decisions
            .is_some_and(|decisions| layout.holds(slot, decisions.iter().map(|d| d.cluster_name.as_str())))
    }
}
