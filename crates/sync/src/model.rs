//! A RootSync or a RepoSync, as both halves of this crate see it.

use std::{fmt, str::FromStr, sync::Arc};

use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta},
    core::{ApiResource, GroupVersionKind},
};
use writ_api::configsync::{RepoSyncSpec, RootSyncSpec, SyncStatus};

/// The namespace of every RootSync and of every reconciler's ServiceAccount.
pub const SYSTEM_NAMESPACE: &str = "config-management-system";
/// The finalizer that stays until the objects of the sync are gone.
pub const RECONCILER_FINALIZER: &str = "configsync.gke.io/reconciler";
/// The finalizer that stays until the bindings and the account are gone.
pub const MANAGER_FINALIZER: &str = "configsync.gke.io/reconciler-manager";
/// What happens to the managed objects when the sync is deleted.
pub const DELETION_POLICY: &str = "configsync.gke.io/deletion-propagation-policy";
/// Set to `true` on a sync that cannot finish its deletion, to leave behind what it may not delete.
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
    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "RootSync",
            Self::Repo => "RepoSync",
        }
    }

    /// The resource's name, as in RBAC.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Root => "rootsyncs",
            Self::Repo => "reposyncs",
        }
    }

    /// The kind with that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "RootSync" => Some(Self::Root),
            "RepoSync" => Some(Self::Repo),
            _ => None,
        }
    }

    /// How the API server is asked for it.
    pub fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(writ_api::configsync::GROUP, "v1beta1", self.as_str());
        ApiResource::from_gvk_with_plural(&kind, self.plural())
    }
}

/// Which sync.
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
    /// The sync with these names.
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
                .ok_or_else(|| format!("there is no kind of sync {kind:?}: use RootSync or RepoSync")),
            _ => Err(format!(
                "{text:?} is no sync: write it as RootSync/NAMESPACE/NAME"
            )),
        }
    }
}

impl fmt::Display for SyncId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// One sync, read from the API server.
#[derive(Clone, Debug)]
pub struct Sync {
    /// Which one.
    pub id: SyncId,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it asks for; why it cannot be understood, if so.
    pub spec: Result<RootSyncSpec, String>,
    /// What was reported so far.
    pub status: SyncStatus,
}

impl Sync {
    /// Reads an object. One that cannot be understood is still known by name, so that it can be reported and deleted.
    pub fn read(kind: SyncKind, object: &DynamicObject) -> Option<Self> {
        let id = SyncId::new(kind, &object.namespace()?, &object.name_any());
        let spec = object
            .data
            .get("spec")
            .cloned()
            .unwrap_or_else(|| serde_json::json!({}));
        let spec = match kind {
            SyncKind::Root => serde_json::from_value::<RootSyncSpec>(spec),
            SyncKind::Repo => serde_json::from_value::<RepoSyncSpec>(spec).map(Into::into),
        };
        let status = object
            .data
            .get("status")
            .and_then(|status| serde_json::from_value(status.clone()).ok())
            .unwrap_or_default();
        Some(Self {
            id,
            metadata: object.metadata.clone(),
            spec: spec.map_err(|error| format!("the spec cannot be read: {error}")),
            status,
        })
    }

    /// Whether somebody asked for its deletion.
    pub fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The generation of its spec.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Whether it has that finalizer.
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
