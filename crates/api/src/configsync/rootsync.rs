//! RootSync: makes a cluster look like a folder of a Git repository.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Git, Helm, Oci, Override, Overrides, SourceType, SyncStatus};

/// What to sync, and with which rights.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configsync.gke.io",
    version = "v1beta1",
    kind = "RootSync",
    namespaced,
    status = "SyncStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A RootSync makes the cluster look like a folder of a repository, with the rights that its roleRefs give.",
    printcolumn = r#"{"name":"RenderingCommit","type":"string","jsonPath":".status.rendering.commit"}"#,
    printcolumn = r#"{"name":"RenderingErrorCount","type":"integer","jsonPath":".status.rendering.errorSummary.totalCount"}"#,
    printcolumn = r#"{"name":"SourceCommit","type":"string","jsonPath":".status.source.commit"}"#,
    printcolumn = r#"{"name":"SourceErrorCount","type":"integer","jsonPath":".status.source.errorSummary.totalCount"}"#,
    printcolumn = r#"{"name":"SyncCommit","type":"string","jsonPath":".status.sync.commit"}"#,
    printcolumn = r#"{"name":"SyncErrorCount","type":"integer","jsonPath":".status.sync.errorSummary.totalCount"}"#,
    printcolumn = r#"{"name":"Roles","type":"string","jsonPath":".status.conditions[?(@.type=='RolesBound')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RootSyncSpec {
    /// How the files are laid out: `hierarchy` (the default) or `unstructured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_format: Option<String>,
    /// Where the files come from.
    #[serde(default)]
    pub source_type: SourceType,
    /// The repository, for the source type `git`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// The image, for the source type `oci`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<Oci>,
    /// The chart, for the source type `helm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm: Option<Helm>,
    /// Settings of the reconciler, its roles among them.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub override_: Option<Override>,
    /// Another spelling of `override`, for its `roleRefs` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Overrides>,
}
