//! What the hub shows: clusters, sets, bindings, placements, decisions and scores, as far as scheduling needs them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision, placement_decision::PLACEMENT_LABEL,
};
use writ_controller::Name;

use super::cluster_view::{AddOnScores, ClusterView, score_in};
use crate::cluster_set::{
    index::MembershipIndex,
    membership::{JOINED_ANNOTATION, SetView},
};

/// Objects of one kind, shared with the caches that they come from.
pub type Objects<K> = BTreeMap<Name, Arc<K>>;

/// All objects that scheduling depends on.
#[derive(Default)]
pub struct Observed {
    /// Which clusters are members of which set.
    pub membership: MembershipIndex,
    /// The clusters, by name.
    pub clusters: BTreeMap<String, ClusterView>,
    /// The bindings of sets to namespaces.
    pub bindings: Objects<ManagedClusterSetBinding>,
    /// The placements.
    pub placements: Objects<Placement>,
    /// The decisions of all placements.
    pub decisions: Objects<PlacementDecision>,
    /// The scores of add-ons, in the namespaces of the clusters.
    pub scores: Objects<AddOnPlacementScore>,
    /// The hub's option of that name.
    guard_default_key: bool,
}

/// Replaces or removes an object; returns what it was before.
pub fn replace<K>(objects: &mut Objects<K>, name: &Name, new: Option<&Arc<K>>) -> Option<Arc<K>> {
    match new {
        Some(new) => objects.insert(name.clone(), new.clone()),
        None => objects.remove(name),
    }
}

/// The objects of one namespace.
pub fn in_namespace<'a, K>(
    objects: &'a Objects<K>,
    namespace: &'a str,
) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
    objects
        .range((Bound::Included(Name::new(namespace, "")), Bound::Unbounded))
        .take_while(move |(name, _)| *name.namespace == *namespace)
        .map(|(_, object)| object)
}

impl Observed {
    /// Nothing is observed yet. `guard_default_key` is the hub's option of that name.
    pub fn new(guard_default_key: bool) -> Self {
        Self {
            guard_default_key,
            ..Self::default()
        }
    }

    /// Takes in a cluster; returns what it was before.
    pub fn take_cluster(&mut self, name: &str, new: Option<&Arc<ManagedCluster>>) -> Option<ClusterView> {
        let Some(cluster) = new else {
            self.membership.remove_cluster(name);
            return self.clusters.remove(name);
        };
        let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
        self.membership.upsert_cluster(name, cluster.labels(), joined);
        self.clusters
            .insert(name.to_owned(), ClusterView::of(cluster.clone()))
    }

    /// Takes in a set; returns whether anything changed that decides about its members.
    pub fn take_set(&mut self, name: &str, new: Option<&Arc<ManagedClusterSet>>) -> bool {
        let view = new.map(|set| SetView::of(set, self.guard_default_key));
        if self.membership.set(name) == view.as_ref() {
            return false;
        }
        match view {
            Some(view) => self.membership.upsert_set(view),
            None => self.membership.remove_set(name),
        };
        true
    }

    /// The existing sets that are bound to a namespace.
    pub fn bound_sets(&self, namespace: &str) -> BTreeSet<String> {
        in_namespace(&self.bindings, namespace)
            .map(|binding| &binding.spec.cluster_set)
            .filter(|set| self.membership.set(set).is_some())
            .cloned()
            .collect()
    }

    /// The decisions with the label of a placement.
    pub fn decisions_of<'a>(
        &'a self,
        placement: &'a Name,
    ) -> impl Iterator<Item = &'a Arc<PlacementDecision>> {
        in_namespace(&self.decisions, &placement.namespace).filter(move |decision| {
            let label = decision.labels().get(PLACEMENT_LABEL);
            label.is_some_and(|label| *label == *placement.name)
        })
    }

    /// A score of an add-on for a cluster, unless it has expired.
    pub fn add_on_score(&self, cluster: &str, resource: &str, score: &str, now: Timestamp) -> Option<i64> {
        let object = self.scores.get(&Name::new(cluster, resource))?;
        score_in(object, score, now)
    }
}

/// The scores of a cluster, as expressions see them.
pub fn scores_of(scores: &Objects<AddOnPlacementScore>, cluster: &str, now: Timestamp) -> AddOnScores {
    AddOnScores::of(in_namespace(scores, cluster).map(|object| &**object), now)
}
