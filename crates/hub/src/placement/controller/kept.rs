//! What is kept of a placement between two looks at it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::ResourceExt;
use writ_api::cluster::PlacementDecision;

use crate::placement::{
    layout::Layout,
    plan::{Compiled, Verdict, slot_of},
};

/// What is kept of a placement between two looks.
pub(super) struct Kept {
    pub(super) compiled: Result<Compiled, String>,
    /// The sets that it chooses from.
    pub(super) sets: BTreeSet<String>,
    /// The verdict on every candidate.
    pub(super) verdicts: BTreeMap<String, Verdict>,
    /// The clusters that it chose last.
    pub(super) chosen: BTreeSet<String>,
    /// Where the clusters of a plain placement are, as far as it is known.
    pub(super) layout: Option<Layout>,
    /// The clusters whose verdict changed since.
    pub(super) moved: BTreeSet<String>,
    /// The clusters whose verdict ends with time.
    pub(super) timed: BTreeSet<String>,
}

impl Kept {
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

    /// Whether a decision object holds what the scheduler laid out for it.
    pub(super) fn is_as_laid_out(&self, placement: &str, decision: &PlacementDecision) -> bool {
        let slot = placement
            .split_once('/')
            .and_then(|(_, name)| slot_of(name, &decision.name_any()));
        let decisions = decision.status.as_ref().map(|s| s.decisions.as_slice());
        match (&self.layout, slot, decisions) {
            (Some(layout), Some(slot), Some(decisions)) => {
                layout.holds(slot, decisions.iter().map(|d| d.cluster_name.as_str()))
            }
            _ => false,
        }
    }
}

/// Counts one placement less that chose the cluster.
pub(super) fn uncount(counts: &mut BTreeMap<String, usize>, cluster: &str) {
    if let Some(count) = counts.get_mut(cluster) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(cluster);
        }
    }
}
