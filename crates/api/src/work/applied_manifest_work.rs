//! AppliedManifestWork: on the managed cluster, what the agent applied for one work.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The anchor of one work's objects: they name it as an owner.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1",
    kind = "AppliedManifestWork",
    shortname = "amw",
    status = "AppliedManifestWorkStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Work", "type": "string", "jsonPath": ".spec.manifestWorkName"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AppliedManifestWorkSpec {
    /// The SHA-256 of the hub's address, as hexadecimal digits.
    pub hub_hash: String,
    /// The agent that looks after this object.
    #[serde(default, rename = "agentID", skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
    /// The name of the ManifestWork on the hub.
    pub manifest_work_name: String,
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedManifestWorkStatus {
    /// The objects, sorted by group, version, resource, namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_resources: Vec<AppliedResource>,
    /// When the grace period before an eviction began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_start_time: Option<Time>,
}

/// One applied object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct AppliedResource {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The API version.
    pub version: String,
    /// The resource.
    pub resource: String,
    /// The namespace; empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}
