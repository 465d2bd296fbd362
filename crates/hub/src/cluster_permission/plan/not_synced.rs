//! What the hub could not read yet. Absence revokes, a failed read never does: what depends on it stays as the works
//! carry it now, and the rest follows the spec.

use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use serde_json::Value;
use writ_api::rbac::cluster_permission::MANAGED_SERVICE_ACCOUNT_KIND;

use super::{
    build::{Builder, Id},
    manifest::{Content, parse},
};

/// Which kinds have not been read, of those that a permission needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// ManagedServiceAccounts, or the add-on that keeps them.
    pub accounts: bool,
    /// Roles or ClusterRoles.
    pub roles: bool,
    /// Namespaces.
    pub namespaces: bool,
}

impl Unread {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self.accounts || self.roles || self.namespaces
    }
}

impl<'a> Builder<'a> {
    /// The subjects of a binding of which some could not be looked for: these as they are in the object now. `None` where
    /// all are known.
    pub(super) fn as_before(&self, id: &Id, content: Content<'_>) -> Option<Vec<Subject>> {
        let Content::Binding(_, subjects) = content else {
            return None;
        };
        let (unread, known): (Vec<&Subject>, Vec<&Subject>) = subjects
            .iter()
            .partition(|subject| subject.kind == MANAGED_SERVICE_ACCOUNT_KIND);
        if unread.is_empty() {
            return None;
        }
        let there = self
            .carried(id)
            .and_then(|m| m.get("spec").unwrap_or(m).get("subjects"));
        let there: Vec<Subject> = parse(there).unwrap_or_default();
        let before = there.iter().filter(|subject| {
            let named = unread.iter().any(|account| account.name == subject.name);
            named && subject.kind == "ServiceAccount" && !known.contains(subject)
        });
        Some(known.iter().copied().chain(before).cloned().collect())
    }

    /// The rules of this role as the works carry it now.
    pub(super) fn rules_before(&self, id: &Id) -> Option<Vec<PolicyRule>> {
        parse(self.carried(id)?.get("rules"))
    }

    /// The namespaces for which the works carry such an object now.
    pub(super) fn namespaces_before(&self, kind: &str, name: &str) -> Vec<String> {
        let ids = self.manifests().map(Id::of);
        ids.filter(|id| id.kind == kind && id.name == name)
            .map(|id| id.namespace)
            .collect()
    }

    fn carried(&self, id: &Id) -> Option<&'a Value> {
        self.manifests().find(|manifest| Id::of(manifest) == *id)
    }

    fn manifests(&self) -> impl Iterator<Item = &'a Value> {
        let works = self.seen.works.values();
        works.flat_map(|work| work.spec.workload.manifests.iter().map(|m| &m.0))
    }
}
