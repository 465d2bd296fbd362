//! ManagedClusterSet: a group of clusters that people share rights on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CLUSTER_SET_LABEL;

/// Condition: no cluster is in the set.
pub const CONDITION_EMPTY: &str = "ClusterSetEmpty";
/// Condition: some cluster carries the set's label without being a member that our consumers count.
pub const CONDITION_CONFLICT: &str = "ClusterSetConflict";

/// How a set chooses its clusters.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta2",
    kind = "ManagedClusterSet",
    status = "ManagedClusterSetStatus",
    shortname = "mclset",
    shortname = "mclsets",
    derive = "Default",
    derive = "PartialEq",
    doc = "A group of clusters that people share rights on.",
    validation = Rule::new(
        "!has(self.spec.clusterLabel) || (self.spec.clusterLabel.value == self.metadata.name && \
         self.spec.clusterLabel.key == (has(self.spec.exclusiveKey) && self.spec.exclusiveKey != '' ? \
         self.spec.exclusiveKey : 'cluster.open-cluster-management.io/clusterset'))"
    ).message(
        "spec.clusterLabel must be the exclusive key and the name of the set; leave it out, it is shown in status"
    ),
    printcolumn = r#"{"name": "Empty", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ClusterSetEmpty\")].status"}"#,
    printcolumn = r#"{"name": "Clusters", "type": "integer", "jsonPath": ".status.clusterCount"}"#,
    printcolumn = r#"{"name": "Key", "type": "string", "jsonPath": ".status.clusterLabel.key"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "(has(self.exclusiveKey) ? self.exclusiveKey : '') == (has(oldSelf.exclusiveKey) ? oldSelf.exclusiveKey : '')"
    ).message("spec.exclusiveKey cannot be changed, added or removed; create another set")
)]
pub struct ManagedClusterSetSpec {
    /// What chooses the clusters. With an exclusive key it is filled in by the hub.
    #[serde(default)]
    #[schemars(extend("default" = {"selectorType": "ExclusiveClusterSetLabel"}))]
    pub cluster_selector: ClusterSelector,
    /// The key of the label that puts clusters into this set: a member has the label
    /// `<exclusiveKey>: <name of the set>`. Two sets with one key never share a cluster, sets with different
    /// keys may. Empty means `cluster.open-cluster-management.io/clusterset`. Never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^$|^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
        )
    )]
    pub exclusive_key: Option<String>,
    /// The label of the members. It follows from the key and the name and need not be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_label: Option<ClusterLabel>,
    /// The namespaces that every cluster of the set shall have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub managed_namespaces: Vec<ManagedNamespace>,
}

/// What chooses the clusters of a set.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelector {
    /// Which of the ways to choose is meant.
    #[serde(default)]
    pub selector_type: SelectorType,
    /// With `LabelSelector`: the clusters it matches. Absent matches none, empty matches all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub label_selector: Option<LabelSelector>,
}

/// The ways to choose the clusters of a set.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelectorType {
    /// By the label `cluster.open-cluster-management.io/clusterset`.
    #[default]
    ExclusiveClusterSetLabel,
    /// By a label selector. A set with an exclusive key is stored in this form too.
    LabelSelector,
    /// An older name of `ExclusiveClusterSetLabel`; the hub rewrites it.
    LegacyClusterSetLabel,
}

/// A label, as a pair.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLabel {
    /// The key.
    pub key: String,
    /// The value, which is the name of the set.
    pub value: String,
}

/// A namespace that every cluster of the set shall have.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedNamespace {
    /// Its name.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// What the hub found out about the set.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSetStatus {
    /// Whether it is empty, and whether some cluster claims to be in it without being a member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The label that members carry; absent for sets with a label selector of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_label: Option<ClusterLabel>,
    /// How many clusters are in the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_count: Option<i64>,
}

impl ManagedClusterSetSpec {
    /// The key that was asked for, if it is another than the default one.
    pub fn own_key(&self) -> Option<&str> {
        self.exclusive_key
            .as_deref()
            .filter(|key| !key.is_empty() && *key != CLUSTER_SET_LABEL)
    }

    /// The key of the label that makes a member; `None` for sets with a label selector of their own.
    pub fn key(&self) -> Option<&str> {
        match (self.own_key(), self.cluster_selector.selector_type) {
            (Some(key), _) => Some(key),
            // An explicit default key says what the set is, whatever selector was stored with it.
            (None, SelectorType::LabelSelector)
                if self.exclusive_key.as_deref() != Some(CLUSTER_SET_LABEL) =>
            {
                None
            }
            (None, _) => Some(CLUSTER_SET_LABEL),
        }
    }
}
