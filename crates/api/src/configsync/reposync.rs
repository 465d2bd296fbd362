//! RepoSync: makes one namespace look like a folder of a Git repository.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Git, Helm, Oci, Override, Overrides, RootSyncSpec, SourceType, SyncStatus};

/// Why `roleRefs` are refused. The rules sit on the fields themselves: they are not asked about a `null`, which upstream
/// stores.
const NO_ROLES: &str = "a RepoSync has no roleRefs: whoever may edit it could give himself more rights than he has; \
                        bind roles to its ServiceAccount instead";

/// What to sync into the RepoSync's own namespace.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "configsync.gke.io",
    version = "v1beta1",
    kind = "RepoSync",
    namespaced,
    status = "SyncStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A RepoSync makes its own namespace look like a folder of a repository, with the rights that are bound to its ServiceAccount.",
    printcolumn = r#"{"name":"RenderingCommit","type":"string","jsonPath":".status.rendering.commit"}"#,
    printcolumn = r#"{"name":"RenderingErrorCount","type":"integer","jsonPath":".status.rendering.errorSummary.totalCount"}"#,
    printcolumn = r#"{"name":"SourceCommit","type":"string","jsonPath":".status.source.commit"}"#,
    printcolumn = r#"{"name":"SourceErrorCount","type":"integer","jsonPath":".status.source.errorSummary.totalCount"}"#,
    printcolumn = r#"{"name":"SyncCommit","type":"string","jsonPath":".status.sync.commit"}"#,
    printcolumn = r#"{"name":"SyncErrorCount","type":"integer","jsonPath":".status.sync.errorSummary.totalCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RepoSyncSpec {
    /// How the files are laid out: `unstructured`, or nothing, which means the same.
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
    /// Settings of the reconciler. `roleRefs` is declared here only so that it can be refused.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("!has(self.roleRefs)").message(NO_ROLES))]
    pub override_: Option<Override>,
    /// Declared only so that `roleRefs` can be refused in this spelling too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("!has(self.roleRefs)").message(NO_ROLES))]
    pub overrides: Option<Overrides>,
}

impl From<RepoSyncSpec> for RootSyncSpec {
    fn from(spec: RepoSyncSpec) -> Self {
        Self {
            // A RepoSync never has the hierarchy layout.
            source_format: Some("unstructured".into()),
            source_type: spec.source_type,
            git: spec.git,
            oci: spec.oci,
            helm: spec.helm,
            override_: spec.override_,
            overrides: None,
        }
    }
}
