//! Which syncs a change concerns. A reconciler that waits because it was refused something is woken up on the way.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::Role;
use kube::Resource;
use writ_api::configsync::RoleRefKind;
use writ_controller::{Name, cache::Change};

use super::{
    model::{Binding, KeptBinding, made_for},
    observe::Caches,
};
use crate::{
    model::{Sync, SyncId, SyncKind},
    names,
    reconciler::Tasks,
    spec::roles_asked,
};

/// Finds the syncs that a change concerns. Cheap to clone.
#[derive(Clone)]
pub struct Affected {
    caches: Caches,
    tasks: Tasks,
}

impl Affected {
    /// Finds syncs in these caches, and their reconcilers in these tasks.
    pub fn new(caches: Caches, tasks: Tasks) -> Self {
        Self { caches, tasks }
    }

    /// A function of a change alone.
    pub fn by<V: 'static>(
        &self,
        find: fn(&Self, &Change<'_, V>) -> BTreeSet<SyncId>,
    ) -> impl Fn(&Change<'_, V>) -> BTreeSet<SyncId> + Send + std::marker::Sync + 'static + use<V> {
        let this = self.clone();
        move |change| find(&this, change)
    }

    /// A RootSync has changed.
    pub fn root_sync(&self, change: &Change<'_, Sync>) -> BTreeSet<SyncId> {
        self.sync(SyncKind::Root, change)
    }

    /// A RepoSync has changed.
    pub fn repo_sync(&self, change: &Change<'_, Sync>) -> BTreeSet<SyncId> {
        self.sync(SyncKind::Repo, change)
    }

    fn sync(&self, kind: SyncKind, change: &Change<'_, Sync>) -> BTreeSet<SyncId> {
        let Name { namespace, name } = change.name.clone();
        let id = SyncId {
            kind,
            namespace,
            name,
        };
        let mut ids = BTreeSet::new();
        if change.is_gone() {
            // Another sync with the same account may get it now.
            ids.extend(self.caches.syncs_with_account(&names::reconciler(&id)));
        }
        ids.insert(id);
        ids
    }

    /// An object that is made for a sync has changed.
    #[expect(clippy::unused_self, reason = "one signature for every kind of change")]
    pub fn made_object<K: Resource>(&self, change: &Change<'_, K>) -> BTreeSet<SyncId> {
        before_and_after(change, made_for)
    }

    /// A Role has changed.
    pub fn role(&self, change: &Change<'_, Option<Role>>) -> BTreeSet<SyncId> {
        let latest = change.new.clone().or_else(|| change.old());
        let mut ids = before_and_after(change, |role| role.as_ref().and_then(made_for));
        // A base role is never named in a spec.
        if latest.is_none_or(|role| role.is_none()) {
            ids.extend(self.naming(RoleRefKind::Role, &change.name));
        }
        ids
    }

    /// A ClusterRole has changed.
    pub fn cluster_role(&self, change: &Change<'_, ()>) -> BTreeSet<SyncId> {
        self.naming(RoleRefKind::ClusterRole, &change.name)
    }

    /// The syncs that name a role in their spec.
    fn naming(&self, kind: RoleRefKind, role: &Name) -> BTreeSet<SyncId> {
        let mut ids = BTreeSet::new();
        for sync in self.caches.readable_syncs() {
            let is_named = names_role(&sync, kind, role);
            // The rights of a RepoSync come from bindings that it does not name.
            if is_named || sync.id.kind == SyncKind::Repo {
                self.tasks.poke(&sync.id);
            }
            if is_named {
                ids.insert(sync.id.clone());
            }
        }
        ids
    }

    /// A namespace has changed.
    pub fn namespace(&self, change: &Change<'_, bool>) -> BTreeSet<SyncId> {
        let mut ids = BTreeSet::new();
        for sync in self.caches.readable_syncs() {
            self.tasks.poke(&sync.id);
            if uses_namespace(&sync, &change.name.name) {
                ids.insert(sync.id.clone());
            }
        }
        ids
    }

    /// A binding has changed.
    pub fn binding<K: Binding>(&self, change: &Change<'_, KeptBinding<K>>) -> BTreeSet<SyncId> {
        let mut ids = before_and_after(change, |kept| kept.whole.as_deref().and_then(made_for));
        let Some(latest) = change.new.clone().or_else(|| change.old()) else {
            return ids;
        };
        for account in &latest.accounts {
            if !change.listed {
                self.tasks.poke_account(account);
            }
            if latest.is_shared() {
                ids.extend(self.caches.syncs_with_account(account));
            }
        }
        ids
    }
}

/// The syncs that an object was made for, before and after a change: a changed label concerns both.
fn before_and_after<V>(change: &Change<'_, V>, made_for: impl Fn(&V) -> Option<SyncId>) -> BTreeSet<SyncId> {
    let (old, new) = (change.old(), change.new.as_ref());
    let old = old.and_then(|object| made_for(&object));
    let new = new.and_then(|object| made_for(object));
    old.into_iter().chain(new).collect()
}

/// Whether a sync names a role in its spec.
fn names_role(sync: &Sync, kind: RoleRefKind, role: &Name) -> bool {
    let Ok(spec) = &sync.spec else { return false };
    let (asked, _) = roles_asked(spec);
    asked.iter().any(|asked| {
        let namespace = asked.namespace.as_deref().unwrap_or_default();
        asked.kind == kind
            && asked.name == *role.name
            && (kind == RoleRefKind::ClusterRole || namespace == &*role.namespace)
    })
}

/// Whether a sync is in a namespace, or names a role in it.
fn uses_namespace(sync: &Sync, namespace: &str) -> bool {
    let Ok(spec) = &sync.spec else { return false };
    let (asked, _) = roles_asked(spec);
    let is_named = asked
        .iter()
        .any(|role| role.namespace.as_deref() == Some(namespace));
    *sync.id.namespace == *namespace || is_named
}
