//! RootSyncs and RepoSyncs, as the manager and the reconciler see them.

use std::{fmt, str::FromStr, sync::Arc};

use kube::{
    api::ObjectMeta,
    core::{ApiResource, GroupVersionKind},
};
use writ_api::configsync::{RepoSync, RootSync, RootSyncSpec, SyncStatus};

/// The namespace of every RootSync and of every reconciler's ServiceAccount.
pub const SYSTEM_NAMESPACE: &str = "config-management-system";
/// The finalizer that stays until the objects of the sync are gone.
pub const RECONCILER_FINALIZER: &str = "configsync.gke.io/reconciler";
/// The finalizer that stays until the bindings and the account are gone.
pub const MANAGER_FINALIZER: &str = "configsync.gke.io/reconciler-manager";
/// The annotation of a sync that says what happens to its objects when it is deleted.
pub const DELETION_POLICY: &str = "configsync.gke.io/deletion-propagation-policy";
/// The annotation of a sync that leaves behind objects that cannot be removed, if it is `true`.
pub const ABANDON: &str = "writ.dev/abandon-managed-objects";

/// The two kinds of sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncKind {
    /// A sync of a cluster.
    Root,
    /// A sync of one namespace.
    Repo,
}

impl SyncKind {
    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "RootSync",
            Self::Repo => "RepoSync",
        }
    }

    /// The name of the resource, as in RBAC.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Root => "rootsyncs",
            Self::Repo => "reposyncs",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "RootSync" => Some(Self::Root),
            "RepoSync" => Some(Self::Repo),
            _ => None,
        }
    }

    /// The resource that the API server serves.
    pub fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(writ_api::configsync::GROUP, "v1beta1", self.as_str());
        ApiResource::from_gvk_with_plural(&kind, self.plural())
    }
}

/// The id of a sync.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncId {
    /// Its kind.
    pub kind: SyncKind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl SyncId {
    /// The id of a sync of these names.
    pub fn new(kind: SyncKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl FromStr for SyncId {
    type Err = String;

    /// Reads `RootSync/NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [kind, namespace, name] if !namespace.is_empty() && !name.is_empty() => SyncKind::parse(kind)
                .map(|kind| Self::new(kind, namespace, name))
                .ok_or_else(|| format!("{kind:?} is not a kind of sync: use RootSync or RepoSync")),
            _ => Err(format!(
                "{text:?} is not a sync: write it as RootSync/NAMESPACE/NAME"
            )),
        }
    }
}

impl fmt::Display for SyncId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// A RootSync or a RepoSync, as the API server stores it.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Its id.
    pub id: SyncId,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec, or why the spec does not parse. Such a sync is still reported on, and can be deleted.
    pub spec: Result<RootSyncSpec, String>,
    /// Its status.
    pub status: SyncStatus,
}

impl From<RootSync> for Sync {
    fn from(sync: RootSync) -> Self {
        Self::new(SyncKind::Root, sync.metadata, sync.spec, sync.status)
    }
}

impl From<RepoSync> for Sync {
    fn from(sync: RepoSync) -> Self {
        Self::new(SyncKind::Repo, sync.metadata, sync.spec.into(), sync.status)
    }
}

impl Sync {
    fn new(kind: SyncKind, metadata: ObjectMeta, spec: RootSyncSpec, status: Option<SyncStatus>) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            id: SyncId::new(kind, &text(&metadata.namespace), &text(&metadata.name)),
            metadata,
            spec: Ok(spec),
            status: status.unwrap_or_default(),
        }
    }

    /// This sync with a reason why its spec does not parse.
    #[must_use]
    pub fn with_problem(&self, problem: &str) -> Self {
        Self {
            id: self.id.clone(),
            metadata: self.metadata.clone(),
            spec: Err(format!("the spec cannot be read: {problem}")),
            status: self.status.clone(),
        }
    }

    /// Whether it is being deleted.
    pub fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The generation of its spec.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| all.iter().any(|f| f == name))
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
