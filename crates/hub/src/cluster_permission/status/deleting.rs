//! Pure: the status of a permission that is being deleted, and that somebody's finalizer keeps for a while.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use writ_api::{
    cluster::ManagedCluster,
    rbac::{ClusterPermission, cluster_permission::ClusterPermissionStatus},
    work::ManifestWork,
};
use writ_controller::condition::{self, Wanted};

use super::progress::{Waiting, left_of};

/// What is left of it. Nothing else is true of it any more, but whom it was for.
pub fn status(
    permission: &ClusterPermission,
    works: &[ManifestWork],
    cluster: Option<&ManagedCluster>,
    now: Timestamp,
) -> ClusterPermissionStatus {
    let mut status = permission.status.clone().unwrap_or_default();
    let left = left_of(works, cluster, &Waiting::new(permission, cluster, now));
    let message = left.map_or_else(
        || {
            format!(
                "it is being deleted and everything that it granted is gone; its finalizers keep it: {}",
                permission.finalizers().join(", ")
            )
        },
        |left| format!("it is being deleted; revocation {left}"),
    );
    let wanted = ["AppliedRBACManifestWork", "Ready"]
        .map(|type_| Wanted::new(type_, false, "Deleting", message.as_str()));
    status
        .conditions
        .retain(|c| wanted.iter().any(|w| w.type_ == c.type_));
    for condition in &wanted {
        condition::set(
            &mut status.conditions,
            condition,
            permission.metadata.generation,
            now,
        );
    }
    status.resource_status = None;
    status.namespace_selections = Vec::new();
    status
}
