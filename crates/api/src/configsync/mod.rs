//! `configsync.gke.io`: syncs from Git.
//!
//! Both kinds are served as `v1beta1` (stored) and `v1alpha1`, with one shape.

pub mod overrides;
pub mod reposync;
pub mod rootsync;
pub mod source;
pub mod status;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use overrides::{Override, Overrides, RoleRef, RoleRefKind};
pub use reposync::{RepoSync, RepoSyncSpec};
pub use rootsync::{RootSync, RootSyncSpec};
pub use source::{Git, GitAuth, Helm, Oci, SecretReference, SourceType};
pub use status::{
    Condition, ErrorResource, ErrorSummary, GitStatus, Gvk, RenderingStatus, RoleRefState, RoleRefStatus,
    SourceStatus, SyncError, SyncStatus,
};

/// The API group.
pub const GROUP: &str = "configsync.gke.io";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![with_alpha(RepoSync::crd()), with_alpha(RootSync::crd())]
}

/// Serves the same shape as `v1alpha1` too: the two versions never differed.
fn with_alpha(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    if let Some(mut alpha) = crd.spec.versions.first().cloned() {
        alpha.name = "v1alpha1".into();
        alpha.storage = false;
        crd.spec.versions.insert(0, alpha);
    }
    crd
}

#[cfg(test)]
mod tests;
