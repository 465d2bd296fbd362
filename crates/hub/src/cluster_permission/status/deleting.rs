//! The status of a permission that is being deleted, and that a finalizer keeps for a while.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use writ_api::{
    cluster::ManagedCluster,
    rbac::{ClusterPermission, cluster_permission::ClusterPermissionStatus},
    work::ManifestWork,
};
use writ_controller::condition::Wanted;

use super::progress::{Waiting, pending_deletion};

/// What is left of it: its last two conditions, and whom it was for.
pub fn status_of_deleted(
    permission: &ClusterPermission,
    works: &[Arc<ManifestWork>],
    cluster: Option<&ManagedCluster>,
    now: Timestamp,
) -> ClusterPermissionStatus {
    let mut status = permission.status.clone().unwrap_or_default();
    let generation = permission.metadata.generation;
    let waiting = Waiting::new(permission, cluster, now);
    let revocation = pending_deletion(works, cluster, &waiting);
    let message = revocation.as_ref().map_or_else(
        || {
            format!(
                "it is being deleted and everything that it granted is gone; its finalizers keep it: {}",
                permission.finalizers().join(", ")
            )
        },
        |revocation| format!("it is being deleted; revocation {revocation}"),
    );
    let mut wanted = ["AppliedRBACManifestWork", "Ready"]
        .map(|type_| Wanted::new(type_, false, "Deleting", message.as_str()))
        .to_vec();
    wanted.extend(waiting.condition(&[], revocation.as_deref()));
    waiting.set_conditions(&mut status.conditions, &wanted, generation, now);
    status.resource_status = None;
    status.namespace_selections = Vec::new();
    status
}
