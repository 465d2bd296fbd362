//! Names of clusters, namespaces and sets.

use crate::agent_identity::SHARED_ROLES;

/// Whether this can be the name of a ManagedClusterSet: a DNS subdomain.
pub fn is_subdomain(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= 253
        && value.split('.').all(|part| {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            edge(part.chars().next())
                && edge(part.chars().next_back())
                && part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

/// Why a cluster cannot have this name: its agent would get rights in a namespace, or through a group or a role, that
/// belongs to others.
pub fn reserved(name: &str) -> Option<&'static str> {
    if name == "default" || name.starts_with("kube-") {
        return Some("its namespace belongs to Kubernetes");
    }
    // The hub's own, and those of agents and add-ons where a hub manages itself.
    if name == "open-cluster-management" || name.starts_with("open-cluster-management-") {
        return Some("its namespace belongs to the hub");
    }
    if SHARED_ROLES.contains(&name) {
        return Some("its role would be one that all clusters share");
    }
    (name == "managed-clusters").then_some("its group would be the one of all agents")
}

/// Whether a name can be a namespace's: a DNS label.
pub fn is_namespace_name(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_subdomain(name)
}
