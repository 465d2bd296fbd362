//! PlacementDecision: the clusters that a placement chose, at most a hundred per object.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The label that names the placement of a decision.
pub const PLACEMENT_LABEL: &str = "cluster.open-cluster-management.io/placement";
/// The label with the index of the decision group.
pub const GROUP_INDEX_LABEL: &str = "cluster.open-cluster-management.io/decision-group-index";
/// The label with the name of the decision group.
pub const GROUP_NAME_LABEL: &str = "cluster.open-cluster-management.io/decision-group-name";
/// How many clusters one object holds at most.
pub const MAX_DECISIONS: usize = 100;

/// This kind has no spec: the scheduler writes the status.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta1",
    kind = "PlacementDecision",
    shortname = "plcd",
    namespaced,
    no_spec,
    status = "PlacementDecisionStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The clusters that a placement chose, at most a hundred per object.",
    printcolumn = r#"{"name": "Placement", "type": "string", "jsonPath": ".metadata.labels.cluster\\.open-cluster-management\\.io/placement"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct PlacementDecisionSpec {}

/// The chosen clusters.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementDecisionStatus {
    /// The chosen clusters.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub decisions: Vec<ClusterDecision>,
}

/// One chosen cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDecision {
    /// The name of the cluster.
    pub cluster_name: String,
    /// Why it was chosen.
    pub reason: String,
    /// The score that the choice was made by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
}
