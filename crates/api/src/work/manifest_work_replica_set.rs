//! ManifestWorkReplicaSet: one ManifestWork for every cluster that placements select.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ManifestWorkSpec, RolloutStrategy, manifest_work::without_default};

/// A work, and the placements whose clusters get it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManifestWorkReplicaSet",
    namespaced,
    shortname = "mwrs",
    status = "ManifestWorkReplicaSetStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Placement", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"PlacementVerified\")].reason"}"#,
    printcolumn = r#"{"name": "Found", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"PlacementVerified\")].status"}"#,
    printcolumn = r#"{"name": "ManifestWorks", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ManifestworkApplied\")].reason"}"#,
    printcolumn = r#"{"name": "Applied", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ManifestworkApplied\")].status"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkReplicaSetSpec {
    /// The spec of every generated work.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub manifest_work_template: ManifestWorkSpec,
    /// The placements, in the same namespace.
    #[schemars(length(min = 1))]
    pub placement_refs: Vec<PlacementRef>,
    /// Whether a deletion waits for the generated works.
    #[serde(default)]
    pub cascade_deletion_policy: CascadeDeletionPolicy,
}

/// A Placement, and how changes reach its clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementRef {
    /// The Placement's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// How changes reach its clusters.
    #[serde(default)]
    pub rollout_strategy: RolloutStrategy,
}

/// Whether a deletion waits for the generated works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CascadeDeletionPolicy {
    /// It does not.
    #[default]
    Background,
    /// It does.
    Foreground,
}

/// What became of the works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkReplicaSetStatus {
    /// `PlacementVerified`, `PlacementRolledOut` and `ManifestworkApplied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The sums over all placements.
    #[serde(default)]
    pub summary: Summary,
    /// The sums of each placement.
    #[serde(default, rename = "placementSummary")]
    pub placement_summary: Vec<PlacementSummary>,
}

/// The sums of one placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSummary {
    /// The placement's name.
    #[serde(default)]
    pub name: String,
    /// How many decision groups, and how many of their clusters are applied.
    #[serde(default)]
    pub available_decision_groups: String,
    /// The sums.
    #[serde(default)]
    pub summary: Summary,
}

/// Counts of generated works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Works that exist.
    #[serde(default)]
    pub total: i64,
    /// Works that are still on their way.
    #[serde(default)]
    pub progressing: i64,
    /// Works whose objects are all there.
    #[serde(default)]
    pub available: i64,
    /// Works that failed after they were applied.
    #[serde(default)]
    pub degraded: i64,
    /// Works that are applied.
    #[serde(default)]
    pub applied: i64,
    /// Clusters that are selected.
    #[serde(default)]
    pub desired_total: i64,
    /// Works that hold the current template.
    #[serde(default)]
    pub updated: i64,
}
