//! May you: one index of RBAC objects, kept up to date by the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::Value;
use writ_authz::{Aggregation, Attributes, Decision, Index, Key, Kind};

use super::{Recorder, User};
use crate::admission::Authorize as _;
use crate::store::{Change, Event};

/// An answer with the reason that the real server gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub allowed: bool,
    pub reason: String,
}

/// Decides by RBAC.
pub(crate) struct Authorizer {
    index: RwLock<Index>,
    pub(super) recorder: OnceLock<Arc<Recorder>>,
    /// The bootstrap policy is being stored, which the index has already.
    filling: AtomicBool,
}

impl Authorizer {
    pub fn new() -> Self {
        Self {
            index: RwLock::new(Index::new(Aggregation::Stored)),
            recorder: OnceLock::new(),
            filling: AtomicBool::new(false),
        }
    }

    /// Starts with a policy that is compiled already; until [`Authorizer::filled`], what is stored is that policy.
    pub fn fill(&self, index: Index) {
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = index;
        self.filling.store(true, Ordering::Release);
    }

    /// From now on every change counts.
    pub fn filled(&self) {
        self.filling.store(false, Ordering::Release);
    }

    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the request may go on; recorded.
    pub fn allows(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        let decision = self.index().allows(&user.name, &user.groups, attributes);
        if matches!(decision, Decision::Allow(_)) {
            self.used(user, attributes);
        }
        decision.allowed()
    }

    /// The answer to a review, with its reason.
    pub fn explain(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let (allowed, reason) = self.authorize(&user.name, &user.groups, attributes);
        Verdict { allowed, reason }
    }

    /// Takes up a change of an RBAC object; other objects are not its business.
    pub fn changed(&self, event: &Event, value: &Value) {
        if self.filling.load(Ordering::Acquire) {
            return;
        }
        let object = &event.object;
        let kind = match &*object.table {
            "roles.rbac.authorization.k8s.io" => Kind::Role,
            "clusterroles.rbac.authorization.k8s.io" => Kind::ClusterRole,
            "rolebindings.rbac.authorization.k8s.io" => Kind::RoleBinding,
            "clusterrolebindings.rbac.authorization.k8s.io" => Kind::ClusterRoleBinding,
            _ => return,
        };
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let applied = if event.change == Change::Deleted {
            false
        } else {
            apply(&mut index, kind, value).is_some()
        };
        // An object that cannot be read grants nothing, not what it granted before.
        if !applied {
            index.remove(Key::new(kind, object.namespace(), object.name()));
        }
    }
}

impl crate::admission::Authorize for Authorizer {
    fn authorize(&self, user: &str, groups: &[String], attributes: &Attributes<'_>) -> (bool, String) {
        let index = self.index();
        match index.allows(user, groups, attributes) {
            Decision::Superuser => (true, String::new()),
            Decision::Deny => (false, String::new()),
            Decision::Allow(grant) => {
                let reason = index.chain(&grant).map(|chain| chain.reason());
                (true, reason.unwrap_or_default())
            }
        }
    }
}

pub(crate) fn apply(index: &mut Index, kind: Kind, value: &Value) -> Option<()> {
    use serde::Deserialize;
    match kind {
        Kind::Role => index.apply(&Role::deserialize(value).ok()?).ok(),
        Kind::ClusterRole => index.apply(&ClusterRole::deserialize(value).ok()?).ok(),
        Kind::RoleBinding => index.apply(&RoleBinding::deserialize(value).ok()?).ok(),
        Kind::ClusterRoleBinding => index.apply(&ClusterRoleBinding::deserialize(value).ok()?).ok(),
    }
}
