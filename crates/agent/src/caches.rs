//! The caches that controllers of the agent share: one watch per kind and process, started by the first that needs it.

use std::sync::OnceLock;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio_util::sync::CancellationToken;
use writ_controller::{Cache, Watch, cache::index_key};

use crate::owner::is_grant;

/// The caches of one process, of the managed cluster.
///
/// RBAC decides what an executor may do: after an interruption it is listed again, so that the gate knows when it sees
/// everything.
pub struct Caches {
    spoke: Client,
    shutdown: CancellationToken,
    roles: OnceLock<Cache<Role>>,
    role_bindings: OnceLock<Cache<RoleBinding>>,
    cluster_roles: OnceLock<Cache<ClusterRole>>,
    cluster_role_bindings: OnceLock<Cache<ClusterRoleBinding>>,
}

impl Caches {
    /// No watch runs yet; each that is started ends at shutdown.
    pub fn new(spoke: Client, shutdown: CancellationToken) -> Self {
        Self {
            spoke,
            shutdown,
            roles: OnceLock::new(),
            role_bindings: OnceLock::new(),
            cluster_roles: OnceLock::new(),
            cluster_role_bindings: OnceLock::new(),
        }
    }

    /// All Roles of the cluster. Indexed by [`objects_of_grant`].
    pub fn roles(&self) -> &Cache<Role> {
        self.roles.get_or_init(|| {
            Watch::new(Api::all(self.spoke.clone()))
                .with_managed_fields()
                .keep(without_fields)
                .relist_after_outage()
                .compressed()
                .index(grant_index)
                .start(&self.shutdown)
        })
    }

    /// All RoleBindings of the cluster. Indexed by [`objects_of_grant`].
    pub fn role_bindings(&self) -> &Cache<RoleBinding> {
        self.role_bindings.get_or_init(|| {
            Watch::new(Api::all(self.spoke.clone()))
                .with_managed_fields()
                .keep(without_fields)
                .relist_after_outage()
                .compressed()
                .index(grant_index)
                .start(&self.shutdown)
        })
    }

    /// All ClusterRoles of the cluster.
    pub fn cluster_roles(&self) -> &Cache<ClusterRole> {
        self.cluster_roles.get_or_init(|| {
            Watch::new(Api::all(self.spoke.clone()))
                .with_managed_fields()
                .keep(without_fields)
                .relist_after_outage()
                .compressed()
                .start(&self.shutdown)
        })
    }

    /// All ClusterRoleBindings of the cluster.
    pub fn cluster_role_bindings(&self) -> &Cache<ClusterRoleBinding> {
        self.cluster_role_bindings.get_or_init(|| {
            Watch::new(Api::all(self.spoke.clone()))
                .with_managed_fields()
                .keep(without_fields)
                .relist_after_outage()
                .compressed()
                .start(&self.shutdown)
        })
    }
}

/// The entry, in the index of Roles and RoleBindings, of the NamespaceGrant of this uid.
pub fn objects_of_grant(uid: &str) -> u64 {
    index_key(("grant", uid))
}

fn grant_index<K: Resource>(object: &K) -> Vec<u64> {
    let owners = object.owner_references().iter();
    let grants = owners.filter(|owner| is_grant(owner));
    grants.map(|owner| objects_of_grant(&owner.uid)).collect()
}

/// Which managers wrote an object is kept, not which fields they wrote.
fn without_fields<K: Resource>(mut object: K) -> K {
    for entry in object.meta_mut().managed_fields.iter_mut().flatten() {
        entry.fields_v1 = None;
    }
    object
}
