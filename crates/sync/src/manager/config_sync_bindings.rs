//! Rights that Config Sync's own manager gave to the accounts of syncs, in bindings that all syncs share.
//!
//! Whoever comes from there still has the account in them, and `cluster-admin` through one of them, whatever the
//! sync's roleRefs say. The account is taken out; a binding without subjects goes.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use writ_controller::{Error, error::Context as _, write};

use super::plan;
use crate::model::{SYSTEM_NAMESPACE, SyncId};

/// The shared bindings of the cluster.
const CLUSTER: [&str; 3] = [
    "configsync.gke.io:root-reconciler",
    "configsync.gke.io:root-reconciler-base",
    "configsync.gke.io:ns-reconciler:cluster-scope",
];
/// The shared binding of a namespace.
const NAMESPACED: &str = "configsync.gke.io:ns-reconciler";

/// A binding that syncs can share.
pub trait Shared: Resource<DynamicType = ()> + Clone {
    /// Whether this is one of those that Config Sync's manager made.
    fn is_legacy(&self) -> bool;
    /// Who has its role.
    fn subjects(&mut self) -> &mut Option<Vec<Subject>>;
}

impl Shared for ClusterRoleBinding {
    fn is_legacy(&self) -> bool {
        CLUSTER.contains(&self.name_any().as_str())
    }

    fn subjects(&mut self) -> &mut Option<Vec<Subject>> {
        &mut self.subjects
    }
}

impl Shared for RoleBinding {
    fn is_legacy(&self) -> bool {
        self.name_any() == NAMESPACED
    }

    fn subjects(&mut self) -> &mut Option<Vec<Subject>> {
        &mut self.subjects
    }
}

/// The shared bindings that are there. Cheap to clone.
#[derive(Clone, Default)]
pub struct Legacy {
    cluster: Arc<RwLock<BTreeMap<String, ClusterRoleBinding>>>,
    namespaced: Arc<RwLock<BTreeMap<String, RoleBinding>>>,
}

impl Legacy {
    /// Takes note of a shared binding of the cluster.
    pub fn observe_cluster(&self, binding: &ClusterRoleBinding, gone: bool) {
        note(&self.cluster, binding.name_any(), binding, gone);
    }

    /// Takes note of a shared binding of a namespace.
    pub fn observe(&self, binding: &RoleBinding, gone: bool) {
        note(
            &self.namespaced,
            binding.namespace().unwrap_or_default(),
            binding,
            gone,
        );
    }

    /// Takes the account of a sync out of every shared binding; returns whether there was one.
    pub async fn revoke(&self, client: &Client, id: &SyncId) -> Result<bool, Error> {
        let subject = plan::subject(id);
        let mut changed = false;
        for mut binding in all(&self.cluster) {
            changed |= without(&Api::all(client.clone()), &mut binding, &subject).await?;
        }
        for mut binding in all(&self.namespaced) {
            let namespace = binding.namespace().unwrap_or_default();
            let api = Api::namespaced(client.clone(), &namespace);
            changed |= without(&api, &mut binding, &subject).await?;
        }
        Ok(changed)
    }
}

fn note<K: Shared>(known: &RwLock<BTreeMap<String, K>>, key: String, binding: &K, gone: bool) {
    if !binding.is_legacy() {
        return;
    }
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    if gone {
        known.remove(&key);
    } else {
        known.insert(key, binding.clone());
    }
}

fn all<K: Clone>(known: &RwLock<BTreeMap<String, K>>) -> Vec<K> {
    let known = known.read().unwrap_or_else(PoisonError::into_inner);
    known.values().cloned().collect()
}

/// Takes the account out of a binding, which goes if it was for nobody else; returns whether it was in it.
pub async fn without<K>(api: &Api<K>, binding: &mut K, account: &Subject) -> Result<bool, Error>
where
    K: Shared + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let is_it = |subject: &Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == account.name
            && subject.namespace.as_deref() == Some(SYSTEM_NAMESPACE)
    };
    let subjects = binding.subjects().get_or_insert_default();
    let before = subjects.len();
    subjects.retain(|subject| !is_it(subject));
    if subjects.len() == before {
        return Ok(false);
    }
    let (empty, name) = (subjects.is_empty(), binding.name_any());
    if empty {
        write::delete(api, &name, binding.uid().as_deref()).await?;
        return Ok(true);
    }
    // With the version that was read: somebody else's subject that came in between stays.
    let patch = json!({
        "metadata": {"uid": binding.uid(), "resourceVersion": binding.resource_version()},
        "subjects": binding.subjects(),
    });
    match api
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(true),
        // Gone. One that has changed is tried again: a sync that goes must not leave its account in it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error).context(|| format!("take {} out of the binding {name}", account.name)),
    }
}
