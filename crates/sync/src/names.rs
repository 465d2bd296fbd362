//! Names, labels and ids that users and Config Sync rely on.

use std::collections::BTreeMap;

use base64::Engine as _;
use sha2::{Digest, Sha256};
use writ_api::configsync::RoleRef;

use crate::model::{SyncId, SyncKind};

/// The label of every object that the manager makes.
pub const MANAGED_BY: &str = "configsync.gke.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGED_BY_VALUE: &str = "reconciler-manager";
/// The label with the kind of the sync that an object was made for.
pub const SYNC_KIND: &str = "configsync.gke.io/sync-kind";
/// The label with the name of the sync that an object was made for.
pub const SYNC_NAME: &str = "configsync.gke.io/sync-name";
/// The label with the namespace of the sync that an object was made for.
pub const SYNC_NAMESPACE: &str = "configsync.gke.io/sync-namespace";
/// The label of every object that a reconciler applies: the set of the objects of its sync.
pub const PART_OF: &str = "applyset.kubernetes.io/part-of";

/// The label of every sync: the set of the objects that it is the parent of.
pub const APPLY_SET_ID: &str = "applyset.kubernetes.io/id";

/// The labels of every object made for a sync.
pub fn labels(id: &SyncId) -> BTreeMap<String, String> {
    [
        (MANAGED_BY, MANAGED_BY_VALUE),
        (SYNC_KIND, id.kind.as_str()),
        (SYNC_NAME, &id.name),
        (SYNC_NAMESPACE, &id.namespace),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// A label selector for every object made for a sync.
pub fn selector(id: &SyncId) -> String {
    let labels = labels(id);
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// The sync that labels name.
pub fn id_of(labels: &BTreeMap<String, String>) -> Option<SyncId> {
    Some(SyncId::new(
        SyncKind::parse(labels.get(SYNC_KIND)?)?,
        labels.get(SYNC_NAMESPACE)?,
        labels.get(SYNC_NAME)?,
    ))
}

/// The name of the reconciler and of its ServiceAccount.
pub fn reconciler(id: &SyncId) -> String {
    match (id.kind, &*id.name) {
        (SyncKind::Root, "root-sync") => "root-reconciler".into(),
        (SyncKind::Root, name) => format!("root-reconciler-{name}"),
        (SyncKind::Repo, "repo-sync") => format!("ns-reconciler-{}", id.namespace),
        // The length makes the name unambiguous, as both parts may contain dashes.
        (SyncKind::Repo, name) => format!("ns-reconciler-{}-{name}-{}", id.namespace, name.len()),
    }
}

/// The name of the base Role and of its binding. The name of a sync contains no colon, so no other name is the same.
pub fn base(id: &SyncId) -> String {
    format!("configsync.gke.io:{}", reconciler(id))
}

/// The name of the binding of a role. It depends on the role alone, so no role is bound twice.
pub fn binding(id: &SyncId, role: &RoleRef) -> String {
    let namespace = role.namespace.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{}/{namespace}/{}", role.kind.as_str(), role.name));
    format!("{}:{}", reconciler(id), hex(&digest, 5))
}

/// Whether a binding has a name that the manager gives to bindings of the sync.
pub fn is_binding(id: &SyncId, name: &str) -> bool {
    let of_role = name.strip_prefix(&*reconciler(id));
    name == base(id) || of_role.is_some_and(|rest| rest.starts_with(':'))
}

/// The id of the set of objects that a sync applies.
pub fn apply_set(id: &SyncId) -> String {
    let text = format!(
        "{}.{}.{}.{}",
        id.name,
        id.namespace,
        id.kind.as_str(),
        writ_api::configsync::GROUP
    );
    let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(text));
    format!("applyset-{encoded}-v1")
}

/// The value of the manager annotation of an object, which names its sync.
pub fn manager_value(id: &SyncId) -> String {
    match (id.kind, &*id.name) {
        (SyncKind::Root, "root-sync") => ":root".into(),
        (SyncKind::Root, name) => format!(":root_{name}"),
        (SyncKind::Repo, "repo-sync") => id.namespace.to_string(),
        (SyncKind::Repo, name) => format!("{}_{name}", id.namespace),
    }
}

/// The id of a sync's inventory.
pub fn inventory_id(id: &SyncId) -> String {
    format!("{}_{}", id.namespace, id.name)
}

/// The first bytes as hexadecimal digits.
pub fn hex(digest: &[u8], bytes: usize) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes * 2);
    for byte in digest.iter().take(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciler_has_the_name_of_config_sync() {
        let name = |kind, namespace, name| reconciler(&SyncId::new(kind, namespace, name));
        assert_eq!(
            name(SyncKind::Root, "config-management-system", "root-sync"),
            "root-reconciler"
        );
        assert_eq!(
            name(SyncKind::Root, "config-management-system", "a"),
            "root-reconciler-a"
        );
        assert_eq!(name(SyncKind::Repo, "team", "repo-sync"), "ns-reconciler-team");
        assert_eq!(name(SyncKind::Repo, "team", "x"), "ns-reconciler-team-x-1");
        // Without the length these two would share an account.
        assert_ne!(name(SyncKind::Repo, "a-b", "c"), name(SyncKind::Repo, "a", "b-c"));
    }

    #[test]
    fn binding_of_a_sync_is_recognised_by_its_name() {
        let id = SyncId::new(SyncKind::Root, "config-management-system", "a");
        let role = RoleRef {
            kind: writ_api::configsync::RoleRefKind::ClusterRole,
            name: "view".into(),
            namespace: None,
        };
        assert!(is_binding(&id, &binding(&id, &role)) && is_binding(&id, &base(&id)));
        for other in [
            "root-reconciler-a",
            "root-reconciler-ab:0",
            "root-reconciler-a-x7k2p",
            "",
        ] {
            assert!(!is_binding(&id, other), "{other}");
        }
    }

    #[test]
    fn labels_and_text_lead_back_to_the_id() {
        let id = SyncId::new(SyncKind::Repo, "team", "x");
        assert_eq!(id_of(&labels(&id)), Some(id.clone()));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("RootSync/a".parse::<SyncId>().is_err());
        assert!("Sync/a/b".parse::<SyncId>().is_err());
    }
}
