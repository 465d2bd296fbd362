//! `rbac.open-cluster-management.io`: RBAC for managed clusters.

pub mod cluster_permission;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use cluster_permission::ClusterPermission;

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![cluster_permission::definition()]
}
