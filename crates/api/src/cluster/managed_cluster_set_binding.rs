//! ManagedClusterSetBinding: lets the placements of a namespace use a set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition: the set exists and its clusters are offered to the placements of the namespace.
pub const CONDITION_BOUND: &str = "Bound";

/// Which set is bound.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta2",
    kind = "ManagedClusterSetBinding",
    namespaced,
    status = "ManagedClusterSetBindingStatus",
    shortname = "mclsetbinding",
    shortname = "mclsetbindings",
    derive = "Default",
    derive = "PartialEq",
    doc = "Lets the placements of a namespace use a set of clusters.",
    printcolumn = r#"{"name": "Bound", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Bound\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSetBindingSpec {
    /// The name of the set, which is also the name of the binding. To create it takes `create` on
    /// `managedclustersets/bind` with that name.
    #[serde(default)]
    #[schemars(length(min = 1), extend("default" = null))]
    pub cluster_set: String,
}

/// Whether the binding has an effect.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSetBindingStatus {
    /// Whether the set exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
