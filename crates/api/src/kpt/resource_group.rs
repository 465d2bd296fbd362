//! ResourceGroup: which objects a sync has made, so that none is forgotten.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which objects belong to the group.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kpt.dev",
    version = "v1alpha1",
    kind = "ResourceGroup",
    shortname = "rg",
    namespaced,
    status = "ResourceGroupStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A ResourceGroup is the inventory of a sync: every object that it made and has not yet given up.",
    printcolumn = r#"{"name": "Reconciling", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Reconciling\")].status"}"#,
    printcolumn = r#"{"name": "Stalled", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Stalled\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct ResourceGroupSpec {
    /// What the group is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<Descriptor>,
    /// The objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ObjMetadata>>,
    /// Other groups that belong to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subgroups: Option<Vec<GroupMetadata>>,
}

/// What a group is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Descriptor {
    /// The kind of thing.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// What a person reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Links to more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Vec<Link>>,
}

/// A link to more about a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// What is there.
    #[serde(default)]
    pub description: String,
    /// Where it is.
    #[serde(default)]
    pub url: String,
}

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ObjMetadata {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for an object of the cluster.
    #[serde(default)]
    pub namespace: String,
    /// Its API group; empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
}

/// Another group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupMetadata {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
}

/// How the objects of the group are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGroupStatus {
    /// The generation of the spec this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One entry per object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_statuses: Option<Vec<ResourceStatus>>,
    /// One entry per group that belongs to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subgroup_statuses: Option<Vec<GroupStatus>>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<GroupCondition>>,
}

/// How one object is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for an object of the cluster.
    #[serde(default)]
    pub namespace: String,
    /// Its API group; empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Whether it is ready, in a word.
    #[serde(default)]
    pub status: String,
    /// The commit it was last applied from, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_hash: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<GroupCondition>>,
    /// `Apply` or `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Whether that was done: `Pending`, `Succeeded`, `Skipped` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actuation: Option<String>,
    /// Whether the object has become what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconcile: Option<String>,
}

/// How a group that belongs to this one is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Whether it is ready, in a word.
    #[serde(default)]
    pub status: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<GroupCondition>>,
}

/// A condition of a group or of an object in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupCondition {
    /// The type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a person reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}
