//! `proxy.open-cluster-management.io`: the group in which accounts were first proposed.

pub mod managed_service_account;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use managed_service_account::{ManagedServiceAccount, ManagedServiceAccountSpec, Rotation};

/// The API group.
pub const GROUP: &str = "proxy.open-cluster-management.io";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![managed_service_account::definition()]
}
