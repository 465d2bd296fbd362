//! AddOnPlacementScore: numbers about one cluster that placements may weigh.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// This kind has no spec: the program that measures writes the status.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1alpha1",
    kind = "AddOnPlacementScore",
    namespaced,
    no_spec,
    status = "AddOnPlacementScoreStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Numbers about one cluster, kept in its namespace, that placements may weigh.",
    printcolumn = r#"{"name": "Valid Until", "type": "date", "jsonPath": ".status.validUntil"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct AddOnPlacementScoreSpec {}

/// The scores of one cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnPlacementScoreStatus {
    /// Conditions of the program that measures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The scores by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub scores: Vec<AddOnScoreItem>,
    /// The scores count as zero after this time; absent means that they never expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub valid_until: Option<String>,
}

/// One score.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnScoreItem {
    /// Its name.
    pub name: String,
    /// Its value: higher is better.
    #[schemars(range(min = -100, max = 100))]
    pub value: i32,
}
