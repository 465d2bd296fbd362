//! Pure: what a permission names.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Resource, ResourceExt as _};
use writ_api::{
    addon::ManagedClusterAddOn,
    rbac::{
        ClusterPermission,
        cluster_permission::{HubRoleRef, MANAGED_SERVICE_ACCOUNT_KIND},
    },
};

use super::{
    build::Id,
    plan::{AddOn, HubRole},
    validate::{self, filled},
};

/// Whether any entry has a namespace selector.
pub fn uses_selector(permission: &ClusterPermission) -> bool {
    let spec = &permission.spec;
    spec.roles.iter().any(|role| role.namespace_selector.is_some())
        || spec
            .role_bindings
            .iter()
            .any(|binding| binding.namespace_selector.is_some())
}

/// The ManagedServiceAccounts that a permission names.
pub fn account_names(permission: &ClusterPermission) -> impl Iterator<Item = &str> {
    let cluster = validate::cluster_role_bindings(permission)
        .map(|(_, binding)| (binding.subject.as_ref(), binding.subjects.as_deref()));
    let bindings = &permission.spec.role_bindings;
    let namespaced = bindings
        .iter()
        .map(|binding| (binding.subject.as_ref(), binding.subjects.as_deref()));
    cluster
        .chain(namespaced)
        .flat_map(|(single, list)| validate::subject_entries("", single, list))
        .filter(|(_, subject)| subject.kind == MANAGED_SERVICE_ACCOUNT_KIND)
        .map(|(_, subject)| subject.name.as_str())
}

/// The kinds and names of the objects that a permission names, wherever they are.
pub fn object_names(permission: &ClusterPermission) -> impl Iterator<Item = (&str, String)> {
    let spec = &permission.spec;
    let own = permission.name_any();
    let named = move |name: Option<&str>| filled(name).unwrap_or(&own).to_owned();
    let cluster_role = spec
        .cluster_role
        .iter()
        .map(|_| ("ClusterRole", permission.name_any()));
    let roles = spec.roles.iter().take(1).map(|_| ("Role", permission.name_any()));
    let hub_roles = spec.role_refs.iter().map(|r| (r.kind.as_str(), r.name.clone()));
    let wide = validate::cluster_role_bindings(permission)
        .map(|(_, binding)| ("ClusterRoleBinding", binding.name.as_deref()));
    let bindings = spec.role_bindings.iter();
    let bindings = bindings.map(|binding| ("RoleBinding", binding.name.as_deref()));
    let bindings = wide.chain(bindings).map(move |(kind, name)| (kind, named(name)));
    cluster_role.chain(roles).chain(hub_roles).chain(bindings)
}

/// The role of the hub that is referred to.
pub fn hub_role_id(reference: &HubRoleRef) -> Id {
    Id {
        kind: reference.kind.clone(),
        namespace: filled(reference.namespace.as_deref()).unwrap_or_default().into(),
        name: reference.name.clone(),
    }
}

/// What the add-on says of the namespace of ServiceAccounts.
pub fn add_on_namespace(add_on: Option<&ManagedClusterAddOn>) -> AddOn<'_> {
    let Some(add_on) = add_on.filter(|a| a.metadata.deletion_timestamp.is_none()) else {
        return AddOn::Missing;
    };
    let reported = add_on
        .status
        .as_ref()
        .and_then(|status| filled(status.namespace.as_deref()));
    match reported.or_else(|| filled(Some(&add_on.spec.install_namespace))) {
        Some(namespace) => AddOn::Namespace(namespace),
        None => AddOn::NoNamespace,
    }
}

/// Names that every cluster has for itself. Without a namespace: in one of those that a selector may select.
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

/// A role of the hub.
pub fn hub_role<K: Resource>(role: &K, rules: Option<&[PolicyRule]>) -> HubRole {
    let name = role.meta().name.as_deref().unwrap_or_default();
    let labels = role.meta().labels.as_ref();
    HubRole {
        rules: rules.unwrap_or_default().to_vec(),
        built_in: name.starts_with("system:")
            || labels.is_some_and(|l| {
                l.get("kubernetes.io/bootstrapping")
                    .is_some_and(|v| v == "rbac-defaults")
            }),
    }
}
