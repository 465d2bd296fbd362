//! Which clusters each placement has, and how many placements have each cluster.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt};
use writ_api::cluster::{Placement, PlacementDecision, placement_decision::PLACEMENT_LABEL};

/// What placements chose: what was planned last, or what is stored where nothing was planned yet. It outlives what is
/// kept of a placement, so that a placement that is looked at anew weighs the others as they are.
#[derive(Debug, Default)]
pub(super) struct DecisionsIndex {
    by_placement: BTreeMap<String, BTreeSet<String>>,
    counts: BTreeMap<String, usize>,
}

impl DecisionsIndex {
    /// Whether the placement has the cluster.
    pub(super) fn has(&self, placement: &str, cluster: &str) -> bool {
        self.by_placement
            .get(placement)
            .is_some_and(|clusters| clusters.contains(cluster))
    }

    /// How many other placements have the cluster.
    pub(super) fn elsewhere(&self, placement: &str, cluster: &str) -> usize {
        let all = self.counts.get(cluster).copied().unwrap_or(0);
        all.saturating_sub(usize::from(self.has(placement, cluster)))
    }

    /// Lets a cluster in or out.
    pub(super) fn note(&mut self, placement: &str, cluster: &str, chosen: bool) {
        if chosen {
            let clusters = self.by_placement.entry(placement.to_owned()).or_default();
            if clusters.insert(cluster.to_owned()) {
                *self.counts.entry(cluster.to_owned()).or_default() += 1;
            }
        } else if let Some(clusters) = self.by_placement.get_mut(placement)
            && clusters.remove(cluster)
        {
            if clusters.is_empty() {
                self.by_placement.remove(placement);
            }
            if let Some(count) = self.counts.get_mut(cluster) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.counts.remove(cluster);
                }
            }
        }
    }

    /// Sets all clusters of a placement; returns those that came or went.
    pub(super) fn replace(&mut self, placement: &str, clusters: &BTreeSet<String>) -> BTreeSet<String> {
        let none = BTreeSet::new();
        let known = self.by_placement.get(placement).unwrap_or(&none);
        let moved: BTreeSet<String> = known.symmetric_difference(clusters).cloned().collect();
        for cluster in &moved {
            self.note(placement, cluster, clusters.contains(cluster));
        }
        moved
    }

    /// Follows a decision object of a placement from one state to the next.
    pub(super) fn follow(
        &mut self,
        placement: &str,
        old: Option<&PlacementDecision>,
        new: Option<&PlacementDecision>,
    ) {
        for (decision, chosen) in [(old, false), (new, true)] {
            let own = decision.filter(|d| placement_of(d).as_deref() == Some(placement));
            for cluster in own
                .and_then(|d| d.status.as_ref())
                .iter()
                .flat_map(|s| &s.decisions)
            {
                self.note(placement, &cluster.cluster_name, chosen);
            }
        }
    }
}

/// The placement that owns a decision object, as `namespace/name`: its label may have been taken off.
pub(super) fn owner_of(decision: &PlacementDecision) -> Option<String> {
    let mut owners = decision.owner_references().iter();
    let owner = owners.find(|owner| owner.kind == Placement::kind(&()) && owner.controller == Some(true))?;
    Some(format!("{}/{}", decision.namespace()?, owner.name))
}

/// The placement that a decision object belongs to, as `namespace/name`.
pub(super) fn placement_of(decision: &PlacementDecision) -> Option<String> {
    let placement = decision.labels().get(PLACEMENT_LABEL)?;
    Some(format!("{}/{placement}", decision.namespace()?))
}
