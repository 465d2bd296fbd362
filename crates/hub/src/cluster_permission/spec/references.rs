//! The other objects that a spec depends on.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use writ_api::rbac::{ClusterPermission, cluster_permission::MANAGED_SERVICE_ACCOUNT_KIND};

use super::{entries::entries, validate::filled};
use crate::cluster_permission::model::{ObjectId, object_id};

/// Whether any entry has a namespace selector.
pub fn uses_selector(permission: &ClusterPermission) -> bool {
    let spec = &permission.spec;
    let mut bindings = spec.role_bindings.iter();
    spec.roles.iter().any(|role| role.namespace_selector.is_some())
        || bindings.any(|binding| binding.namespace_selector.is_some())
}

/// The ManagedServiceAccounts among the subjects.
pub fn account_names(permission: &ClusterPermission) -> BTreeSet<String> {
    let entries = entries(permission);
    let subjects = entries.iter().flat_map(|entry| entry.subjects());
    subjects
        .filter(|named| named.subject.kind == MANAGED_SERVICE_ACCOUNT_KIND)
        .map(|named| named.subject.name.clone())
        .collect()
}

/// The roles of the hub that are referred to.
pub fn hub_roles(permission: &ClusterPermission) -> impl Iterator<Item = ObjectId> {
    permission.spec.role_refs.iter().map(|reference| {
        let namespace = filled(reference.namespace.as_deref()).unwrap_or_default();
        object_id(&reference.kind, namespace, &reference.name)
    })
}

/// Hashes of the kinds and names of the objects that the permission makes, in whatever namespace. Permissions without a
/// common hash cannot be in conflict.
pub fn object_hashes(permission: &ClusterPermission) -> BTreeSet<u64> {
    let hash = |kind: &str, name: &str| {
        let mut hasher = DefaultHasher::new();
        (kind, name).hash(&mut hasher);
        hasher.finish()
    };
    let entries = entries(permission);
    entries.iter().map(|entry| hash(entry.kind, entry.name)).collect()
}

/// Whether every cluster has an object of this name of its own. An empty namespace stands for any that a selector may select.
pub fn is_built_in(kind: &str, namespace: &str, name: &str) -> bool {
    name.starts_with("system:")
        || match kind {
            "ClusterRole" => ["cluster-admin", "admin", "edit", "view"].contains(&name),
            "ClusterRoleBinding" => name == "cluster-admin",
            "Role" => {
                ["", "kube-system"].contains(&namespace)
                    && name == "extension-apiserver-authentication-reader"
            }
            _ => false,
        }
}
