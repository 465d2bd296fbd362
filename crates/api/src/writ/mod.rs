//! `writ.dev`: kinds of our own, and the names by which hub and agent understand each other.

pub mod namespace_grant;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use namespace_grant::NamespaceGrant;

/// On a manifest of a ManifestWork: what the agent does when the object exists and no work put it there.
pub const ON_CONFLICT_ANNOTATION: &str = "work.writ.dev/on-conflict";

/// The value of [`ON_CONFLICT_ANNOTATION`] that makes the agent leave such an object alone and report it.
pub const ON_CONFLICT_REFUSE: &str = "refuse";

/// On a manifest that binds a role, or a NamespaceGrant that does: whose role that is.
pub const BOUND_ROLE_ANNOTATION: &str = "work.writ.dev/bound-role";

/// The value of [`BOUND_ROLE_ANNOTATION`] for a role of the same ClusterPermission: it is not bound on clusters
/// where a role of its name belongs to another owner.
pub const BOUND_ROLE_OWN: &str = "own";

/// On a ClusterPermission, with the value `true`: objects of its names that exist already are taken over.
pub const ADOPT_ANNOTATION: &str = "writ.dev/adopt";

/// On every object that a NamespaceGrant made, so that the agent watches only those.
pub const GRANTED_LABEL: &str = "writ.dev/namespace-grant";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    use kube::CustomResourceExt as _;
    vec![NamespaceGrant::crd()]
}
