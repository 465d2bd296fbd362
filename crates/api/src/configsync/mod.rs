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

use crate::schema;

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
    [RepoSync::crd(), RootSync::crd()]
        .map(|crd| schema::with_default_spec(crd, &serde_json::json!({})))
        // The two versions never differed.
        .map(|crd| schema::also_served(crd, &["v1alpha1"]))
        .into()
}

#[cfg(test)]
mod tests;
