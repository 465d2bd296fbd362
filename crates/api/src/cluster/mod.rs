//! `cluster.open-cluster-management.io`: clusters, sets of clusters, placement.

pub mod add_on_placement_score;
pub mod cluster_claim;
pub mod managed_cluster;
pub mod managed_cluster_set;
pub mod managed_cluster_set_binding;
pub mod placement;
pub mod placement_decision;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::schema;

pub use add_on_placement_score::AddOnPlacementScore;
pub use cluster_claim::ClusterClaim;
pub use managed_cluster::ManagedCluster;
pub use managed_cluster_set::ManagedClusterSet;
pub use managed_cluster_set_binding::ManagedClusterSetBinding;
pub use placement::Placement;
pub use placement_decision::PlacementDecision;

/// The API group of every kind in this folder.
pub const GROUP: &str = "cluster.open-cluster-management.io";
/// The key of the label that puts a cluster into a set which names no key of its own.
pub const CLUSTER_SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";
/// The label that names the cluster on everything that the hub keeps for it.
pub const CLUSTER_NAME_LABEL: &str = "open-cluster-management.io/cluster-name";
/// The set of clusters without a label for another one.
pub const DEFAULT_SET: &str = "default";
/// The set of all clusters.
pub const GLOBAL_SET: &str = "global";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let sets = schema::with_default_spec(
        ManagedClusterSet::crd(),
        &serde_json::json!({"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}}),
    );
    let sets = schema::also_served(sets, &["v1beta1", "v1alpha1"]);
    let empty = serde_json::json!({});
    [
        AddOnPlacementScore::crd(),
        schema::with_default_spec(ClusterClaim::crd(), &empty),
        schema::with_default_spec(ManagedCluster::crd(), &empty),
        schema::with_default_spec(ManagedClusterSetBinding::crd(), &empty),
        sets,
        PlacementDecision::crd(),
        Placement::crd(),
    ]
    .into()
}

#[cfg(test)]
mod tests;
