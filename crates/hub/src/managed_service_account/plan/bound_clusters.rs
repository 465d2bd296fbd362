//! Which clusters a namespace is bound to.

use std::sync::Arc;

use kube::ResourceExt;
use writ_api::cluster::{
    ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, managed_cluster::CONDITION_HUB_ACCEPTED,
};

use crate::{
    cluster_set::membership::{JOINED_ANNOTATION, Membership, SetView},
    managed_service_account::model::Place,
};

/// Returns true if the namespace of this name is the cluster's: it is accepted, or was and is denied now or leaves. A mere
/// request to be accepted takes no namespace.
pub fn has_namespace(cluster: &ManagedCluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    cluster.spec.hub_accepts_client
        || conditions
            .map(|condition| condition.type_.as_str())
            .any(|type_| type_ == CONDITION_HUB_ACCEPTED)
}

/// Where an account in a namespace is: `own` is the cluster of the namespace's name, `bindings` are the namespace's.
pub fn place<'a>(
    own: Option<&ManagedCluster>,
    bindings: impl IntoIterator<Item = &'a ManagedClusterSetBinding>,
    set: impl Fn(&str) -> Option<Arc<ManagedClusterSet>>,
    clusters: impl FnOnce() -> Vec<Arc<ManagedCluster>>,
    guard_default_key: bool,
) -> Place {
    if own.is_some_and(has_namespace) {
        return Place::Cluster;
    }
    let bound: Vec<SetView> = bindings
        .into_iter()
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
        .filter_map(|binding| set(&binding.spec.cluster_set))
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .map(|set| SetView::of(&set, guard_default_key))
        .collect();
    if bound.is_empty() {
        return Place::Nowhere;
    }
    let members = clusters()
        .into_iter()
        .filter(|cluster| cluster.spec.hub_accepts_client && cluster.metadata.deletion_timestamp.is_none())
        .filter(|cluster| bound.iter().any(|set| is_member(set, cluster)));
    Place::Sets(members.map(|cluster| cluster.name_any()).collect())
}

/// Returns true if a cluster is in a set. The mere label of a guarded set, without a confirmation, is no membership: a user
/// with the right to label a cluster must not get an account there.
pub fn is_member(set: &SetView, cluster: &ManagedCluster) -> bool {
    let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
    set.membership(cluster.labels(), joined) == Membership::Member
}
