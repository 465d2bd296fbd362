//! ManagedCluster: one cluster that has joined, or asks to join, the hub.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster_claim::CLAIM_AGENT;
use crate::{NumberOrText, readable::elements};

/// The taint of a cluster whose API server does not answer its own agent.
pub const TAINT_UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";
/// The taint of a cluster that has not reported to the hub for too long.
pub const TAINT_UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";

/// Condition: the hub's administrators accepted the cluster.
pub const CONDITION_HUB_ACCEPTED: &str = "HubAcceptedManagedCluster";
/// Condition: the agent of the cluster has reached the hub with its own identity.
pub const CONDITION_JOINED: &str = "ManagedClusterJoined";
/// Condition: the API server of the cluster answers its agent, and the agent reports.
pub const CONDITION_AVAILABLE: &str = "ManagedClusterConditionAvailable";

/// What the hub should know of a cluster and whether the hub lets it in.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1",
    kind = "ManagedCluster",
    status = "ManagedClusterStatus",
    shortname = "mcl",
    shortname = "mcls",
    derive = "Default",
    derive = "PartialEq",
    doc = "A cluster that has joined, or asks to join, this hub.",
    printcolumn = r#"{"name": "Hub Accepted", "type": "boolean", "jsonPath": ".spec.hubAcceptsClient"}"#,
    printcolumn = r#"{"name": "Managed Cluster URLs", "type": "string", "jsonPath": ".spec.managedClusterClientConfigs[*].url"}"#,
    printcolumn = r#"{"name": "Joined", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ManagedClusterJoined\")].status"}"#,
    printcolumn = r#"{"name": "Available", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ManagedClusterConditionAvailable\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSpec {
    /// Where the API server of the cluster can be reached, if it can be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed_cluster_client_configs: Vec<ClientConfig>,
    /// Whether the hub lets the cluster in. To set it takes `update` on `managedclusters/accept` of the group
    /// `register.open-cluster-management.io`; the agent gets its namespace and rights with it, and loses its
    /// rights at once when it becomes false.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub hub_accepts_client: bool,
    /// How often the agent renews its lease. The cluster counts as unreachable after five times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 60))]
    pub lease_duration_seconds: Option<i32>,
    /// Marks that keep placements away which do not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// One address of a cluster's API server.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// The address, with scheme `https`.
    pub url: String,
    /// The certificates, PEM in base64, that the server's certificate is checked against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
}

/// A mark that keeps placements away which do not tolerate it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// The key, in the form of a label key.
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub key: String,
    /// The value that a toleration may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub value: Option<String>,
    /// What it does to placements that do not tolerate it.
    pub effect: TaintEffect,
    /// When it was added, set by the hub. Tolerations with seconds count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub time_added: Option<String>,
}

/// What a taint does to placements that do not tolerate it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// The cluster is never selected, and removed where it is.
    NoSelect,
    /// The cluster is selected only when no other is left.
    PreferNoSelect,
    /// The cluster stays where it is selected and is selected nowhere else.
    NoSelectIfNew,
}

impl TaintEffect {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSelect => "NoSelect",
            Self::PreferNoSelect => "PreferNoSelect",
            Self::NoSelectIfNew => "NoSelectIfNew",
        }
    }
}

/// What the agent and the hub report about the cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    /// Accepted, joined, available and more.
    #[serde(default, deserialize_with = "elements", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The sum over all nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, NumberOrText>,
    /// The sum over all nodes that take new pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, NumberOrText>,
    /// The versions of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<ManagedClusterVersion>,
    /// What the cluster says about itself with ClusterClaims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_claims: Vec<ReportedClaim>,
    /// The namespaces that the sets of the cluster ask for.
    #[serde(default, deserialize_with = "elements", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["clusterSet", "name"]
    ))]
    pub managed_namespaces: Vec<ReportedNamespace>,
}

/// The versions of a cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterVersion {
    /// The version of its API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
}

/// A claim of the cluster, as it was reported.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ReportedClaim {
    /// The name of the ClusterClaim.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), extend("default" = null))]
    pub name: String,
    /// Its value.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024), extend("default" = null))]
    pub value: String,
}

/// A namespace that a set of the cluster asks for.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ReportedNamespace {
    /// The name of the namespace.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The set that asks for it.
    pub cluster_set: String,
    /// What the agent found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl ManagedCluster {
    /// Whether our own agent runs this controller there, according to its claim; `None` before it has one.
    pub fn agent_runs(&self, controller: &str) -> Option<bool> {
        let mut claims = self.status.iter().flat_map(|status| &status.cluster_claims);
        let claim = claims.find(|claim| claim.name == CLAIM_AGENT)?;
        Some(claim.value.split(',').any(|name| name.trim() == controller))
    }
}
