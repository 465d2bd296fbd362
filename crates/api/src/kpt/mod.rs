//! `kpt.dev`: the inventory of a sync.

pub mod resource_group;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::schema;

pub use resource_group::{
    ObjMetadata, ResourceGroup, ResourceGroupSpec, ResourceGroupStatus, ResourceStatus,
};

/// The API group.
pub const GROUP: &str = "kpt.dev";

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![schema::with_default_spec(
        ResourceGroup::crd(),
        &serde_json::json!({}),
    )]
}
