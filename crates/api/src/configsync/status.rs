//! What a sync reports.
//!
//! Two writers share it: the manager (`observedGeneration`, `reconciler`, `roleRefs` and the conditions
//! `Reconciling`, `Stalled`, `RolesBound`) and the reconciler (the rest). Conditions are a map by type, so that
//! both can use server-side apply and never overwrite each other.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RoleRefKind;

/// The status of a RootSync or RepoSync.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncStatus {
    /// The generation of the spec that the manager has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The name of the reconciler and of its ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciler: Option<String>,
    /// The commit that was last synced without any error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_synced_commit: Option<String>,
    /// What was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceStatus>,
    /// What was rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendering: Option<RenderingStatus>,
    /// What was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SourceStatus>,
    /// One entry for each role in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_refs: Option<Vec<RoleRefStatus>>,
    /// Conditions, by type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Option<Vec<Condition>>,
}

/// The state of one role of a RootSync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleRefStatus {
    /// `Role` or `ClusterRole`.
    pub kind: RoleRefKind,
    /// The role's name.
    pub name: String,
    /// The namespace it is bound in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// Whether the role is in force.
    pub state: RoleRefState,
    /// Why not, for a person to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far a role is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RoleRefState {
    /// The binding and the role are there.
    Bound,
    /// The namespace to bind it in is not there.
    WaitingForNamespace,
    /// The binding is there, the role is not.
    RoleMissing,
    /// The binding could not be written.
    Failed,
    /// The reference makes no sense.
    Invalid,
}

/// What was read from or applied of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_status: Option<GitStatus>,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_status: Option<OciStatus>,
    /// The chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_status: Option<HelmStatus>,
    /// The commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When this part last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Time>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<SyncError>>,
    /// How many errors there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_summary: Option<ErrorSummary>,
    /// How many objects are managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_count: Option<i64>,
}

/// What was rendered of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderingStatus {
    /// The repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_status: Option<GitStatus>,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_status: Option<OciStatus>,
    /// The chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_status: Option<HelmStatus>,
    /// The commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When this part last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Time>,
    /// What happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<SyncError>>,
    /// How many errors there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_summary: Option<ErrorSummary>,
}

/// Which files of which repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GitStatus {
    /// The repository.
    #[serde(default)]
    pub repo: String,
    /// The revision.
    #[serde(default)]
    pub revision: String,
    /// The branch.
    #[serde(default)]
    pub branch: String,
    /// The folder.
    #[serde(default)]
    pub dir: String,
}

/// Which files of which image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OciStatus {
    /// The image.
    #[serde(default)]
    pub image: String,
    /// The folder.
    #[serde(default)]
    pub dir: String,
}

/// Which chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HelmStatus {
    /// The chart repository.
    #[serde(default)]
    pub repo: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The chart.
    #[serde(default)]
    pub chart: String,
}

/// One thing that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncError {
    /// The number of the kind of error, such as `1060`.
    pub code: String,
    /// What went wrong and what to do.
    pub error_message: String,
    /// The objects it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_resources: Option<Vec<ErrorResource>>,
}

/// An object that an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorResource {
    /// The file that declares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_path: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gvk: Option<Gvk>,
}

/// A kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Gvk {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
}

/// How many errors there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorSummary {
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_count: Option<i64>,
    /// Whether some are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// How many are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_count_after_truncation: Option<i64>,
}

/// A condition of a sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type, such as `Syncing`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation of the spec it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When any part of it last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a person reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The commit it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<SyncError>>,
    /// Where the errors are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_source_refs: Option<Vec<String>>,
    /// How many errors there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_summary: Option<ErrorSummary>,
}
