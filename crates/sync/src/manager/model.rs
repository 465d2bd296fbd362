//! The types of the manager: what is kept of a binding, and what became of the bindings of a sync.

use std::fmt::Debug;

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::{Resource, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};
use writ_controller::{Error, cache::index_key};

use crate::{
    model::{SYSTEM_NAMESPACE, SyncId},
    names,
};

/// The ClusterRoleBindings that Config Sync's manager makes for several syncs.
const SHARED_CLUSTER_BINDINGS: [&str; 3] = [
    "configsync.gke.io:root-reconciler",
    "configsync.gke.io:root-reconciler-base",
    "configsync.gke.io:ns-reconciler:cluster-scope",
];
/// The RoleBinding that Config Sync's manager makes in a namespace for several syncs.
const SHARED_BINDING: &str = "configsync.gke.io:ns-reconciler";

/// A binding of either kind.
pub trait Binding: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {
    /// Whether it has the name of a binding that Config Sync's manager makes for several syncs.
    fn is_shared(&self) -> bool;
    /// Its subjects.
    fn subjects(&self) -> &[Subject];
}

impl Binding for ClusterRoleBinding {
    fn is_shared(&self) -> bool {
        SHARED_CLUSTER_BINDINGS.contains(&self.name_any().as_str())
    }

    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

impl Binding for RoleBinding {
    fn is_shared(&self) -> bool {
        self.name_any() == SHARED_BINDING
    }

    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

/// What is kept of a binding.
#[derive(Clone, Debug)]
pub struct KeptBinding<K> {
    /// The accounts of reconcilers that it binds.
    pub accounts: Vec<String>,
    /// The binding, if it was made for a sync, or by Config Sync's manager for several.
    pub whole: Option<Box<K>>,
}

impl<K: Binding> KeptBinding<K> {
    /// What is kept of this binding.
    pub fn of(binding: K) -> Self {
        let accounts = binding.subjects().iter().filter(|subject| {
            subject.kind == "ServiceAccount" && subject.namespace.as_deref() == Some(SYSTEM_NAMESPACE)
        });
        Self {
            accounts: accounts.map(|subject| subject.name.clone()).collect(),
            whole: (made_for(&binding).is_some() || binding.is_shared()).then(|| Box::new(binding)),
        }
    }

    /// The binding, if it was made for this sync.
    pub fn whole_of(&self, id: &SyncId) -> Option<&K> {
        let binding = self.whole.as_deref()?;
        (made_for(binding).as_ref() == Some(id)).then_some(binding)
    }

    /// Whether Config Sync's manager made it for several syncs.
    pub fn is_shared(&self) -> bool {
        self.whole.as_ref().is_some_and(|binding| binding.is_shared())
    }

    /// Its entries in the index.
    pub fn index(&self) -> Vec<u64> {
        let Some(binding) = &self.whole else {
            return Vec::new();
        };
        let id = made_for(&**binding).map(|id| bindings_of(&id));
        let shared = binding.is_shared().then(shared_bindings);
        id.into_iter().chain(shared).collect()
    }
}

/// The entry, in the indices of bindings, of those made for a sync.
pub fn bindings_of(id: &SyncId) -> u64 {
    index_key(id)
}

/// The entry, in the indices of bindings, of those that Config Sync's manager made for several syncs.
pub fn shared_bindings() -> u64 {
    index_key("shared")
}

/// The sync that an object was made for, as its labels say.
pub fn made_for<K: Resource>(object: &K) -> Option<SyncId> {
    names::id_of(object.meta().labels.as_ref()?)
}

/// What became of the bindings of a sync.
#[derive(Default)]
pub struct Bound {
    /// For each planned role, why it could not be bound.
    pub failures: Vec<Option<String>>,
    /// Whether any right was granted or revoked.
    pub is_changed: bool,
    /// The first failure that a retry may cure.
    pub error: Option<Error>,
}
