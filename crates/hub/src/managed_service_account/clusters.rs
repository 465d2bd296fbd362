//! Which clusters a namespace is bound to.

use std::collections::BTreeSet;

use kube::ResourceExt;
use writ_api::cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding};

use super::{mirror::Mirror, plan::Place};

/// Where an account in this namespace stands.
pub fn place(
    namespace: &str,
    clusters: &Mirror<ManagedCluster>,
    sets: &Mirror<ManagedClusterSet>,
    bindings: &Mirror<ManagedClusterSetBinding>,
) -> Place {
    if clusters.get("", namespace).is_some() {
        return Place::Cluster;
    }
    let bound: Vec<&ManagedClusterSet> = bindings
        .within(namespace)
        .filter(|(_, binding)| binding.metadata.deletion_timestamp.is_none())
        .filter_map(|(_, binding)| sets.get("", &binding.spec.cluster_set))
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .collect();
    if bound.is_empty() {
        return Place::Nowhere;
    }
    Place::Sets(
        clusters
            .iter()
            .filter(|(_, cluster)| {
                cluster.spec.hub_accepts_client && cluster.metadata.deletion_timestamp.is_none()
            })
            .filter(|(_, cluster)| bound.iter().any(|set| is_member(set, cluster)))
            .map(|((_, name), _)| name.clone())
            .collect::<BTreeSet<_>>(),
    )
}

/// Whether a cluster is in a set.
fn is_member(set: &ManagedClusterSet, cluster: &ManagedCluster) -> bool {
    use kube::core::{Selector, SelectorExt};
    if let Some(key) = set.spec.key() {
        return cluster.labels().get(key) == Some(&set.name_any());
    }
    set.spec
        .cluster_selector
        .label_selector
        .clone()
        .and_then(|selector| Selector::try_from(selector).ok())
        .is_some_and(|selector| selector.matches(cluster.labels()))
}
