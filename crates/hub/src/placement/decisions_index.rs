//! Which clusters each placement has chosen, and how many placements have chosen each cluster.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt};
use writ_api::cluster::{Placement, PlacementDecision, placement_decision::PLACEMENT_LABEL};
use writ_controller::Name;

/// The choices of all placements: the last plan, or the stored decisions of placements that are not planned yet. Kept
/// apart from [`super::memory`], so that forgetting a placement does not change what others weigh.
#[derive(Debug, Default)]
pub struct DecisionsIndex {
    by_placement: BTreeMap<Name, BTreeSet<String>>,
    counts: BTreeMap<String, usize>,
}

impl DecisionsIndex {
    /// Whether the placement has chosen the cluster.
    pub fn has(&self, placement: &Name, cluster: &str) -> bool {
        self.by_placement
            .get(placement)
            .is_some_and(|clusters| clusters.contains(cluster))
    }

    /// How many other placements have chosen the cluster.
    pub fn chosen_elsewhere(&self, placement: &Name, cluster: &str) -> usize {
        let all = self.counts.get(cluster).copied().unwrap_or(0);
        all.saturating_sub(usize::from(self.has(placement, cluster)))
    }

    /// Records whether the placement has chosen the cluster.
    pub fn set(&mut self, placement: &Name, cluster: &str, chosen: bool) {
        if chosen {
            let clusters = self.by_placement.entry(placement.clone()).or_default();
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

    /// Records all clusters of a placement; returns those that came or went.
    pub fn replace(&mut self, placement: &Name, clusters: &BTreeSet<String>) -> BTreeSet<String> {
        let none = BTreeSet::new();
        let known = self.by_placement.get(placement).unwrap_or(&none);
        let moved: BTreeSet<String> = known.symmetric_difference(clusters).cloned().collect();
        for cluster in &moved {
            self.set(placement, cluster, clusters.contains(cluster));
        }
        moved
    }

    /// Follows the change of a stored decision of a placement.
    pub fn follow(
        &mut self,
        placement: &Name,
        old: Option<&PlacementDecision>,
        new: Option<&PlacementDecision>,
    ) {
        for (decision, chosen) in [(old, false), (new, true)] {
            let own = decision.filter(|d| placement_of(d).as_ref() == Some(placement));
            for cluster in own
                .and_then(|d| d.status.as_ref())
                .iter()
                .flat_map(|s| &s.decisions)
            {
                self.set(placement, &cluster.cluster_name, chosen);
            }
        }
    }
}

/// The placement that owns a decision; its label may have been removed.
pub fn owner_of(decision: &PlacementDecision) -> Option<Name> {
    let mut owners = decision.owner_references().iter();
    let owner = owners.find(|owner| owner.kind == Placement::kind(&()) && owner.controller == Some(true))?;
    Some(Name::new(decision.namespace()?, owner.name.as_str()))
}

/// The placement that the label of a decision names.
pub fn placement_of(decision: &PlacementDecision) -> Option<Name> {
    let placement = decision.labels().get(PLACEMENT_LABEL)?;
    Some(Name::new(decision.namespace()?, placement.as_str()))
}
