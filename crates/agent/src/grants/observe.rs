//! What is observed of the managed cluster: namespaces, grants, Roles and RoleBindings, and which of these grants made.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Resource};
use writ_api::writ::NamespaceGrant;
use writ_controller::{
    Cache, Name, Watch,
    cache::{Change, index_key},
};

use super::{
    model::{Active, Key, Objects},
    object::{Kind, Object},
    ownership::{classify, is_granted},
};
use crate::{Context, caches::objects_of_grant};

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// The caches that this controller reads.
pub struct Caches {
    /// The labels of each namespace; `None` while it is terminating.
    pub namespaces: Cache<Option<Labels>>,
    /// The grants.
    pub grants: Cache<Active>,
    /// Roles.
    pub roles: Cache<Role>,
    /// RoleBindings.
    pub bindings: Cache<RoleBinding>,
}

impl Caches {
    /// Starts the watches that no other controller shares.
    pub fn start(context: &Context) -> Self {
        let (spoke, shutdown) = (&context.spoke, &context.shutdown);
        Self {
            namespaces: Watch::new(Api::all(spoke.clone()))
                .keep(|namespace: Namespace| {
                    let meta = namespace.metadata;
                    let labels = meta.labels.unwrap_or_default();
                    meta.deletion_timestamp.is_none().then_some(labels)
                })
                .start(shutdown),
            grants: Watch::new(Api::all(spoke.clone()))
                .keep(Active::new)
                .start(shutdown),
            roles: context.caches.roles().clone(),
            bindings: context.caches.role_bindings().clone(),
        }
    }

    /// The labels of a namespace, unless it is gone or terminating.
    pub fn labels(&self, namespace: &str) -> Option<Labels> {
        let labels = self.namespaces.get(&Name::global(namespace))?;
        (*labels).clone()
    }

    /// The Roles and RoleBindings of a namespace.
    pub fn objects(&self, namespace: &str, own: &OwnObjects) -> Objects {
        let roles = self.roles.in_namespace(namespace).into_iter();
        let roles = roles.map(|(name, role)| (name, Object::Role(Box::new(Arc::unwrap_or_clone(role)))));
        let bindings = self.bindings.in_namespace(namespace).into_iter();
        let bindings = bindings.map(|(name, binding)| {
            let binding = Box::new(Arc::unwrap_or_clone(binding));
            (name, Object::RoleBinding(binding))
        });
        let objects = roles.chain(bindings).map(|(name, object)| {
            let known = own.contains(object.kind(), &name, object.meta().uid.as_deref());
            let key = (object.kind(), name.name.to_string());
            (key, classify(object, known))
        });
        objects.collect()
    }

    /// The namespaces that a grant selects.
    pub fn selected(&self, active: &Active) -> BTreeSet<String> {
        let namespaces = self.namespaces.all().into_iter();
        let selected = namespaces.filter(|(_, labels)| {
            let labels = labels.as_ref().as_ref();
            labels.is_some_and(|labels| active.selects(labels))
        });
        selected.map(|(name, _)| name.name.to_string()).collect()
    }

    /// Returns true if nothing of what a grant made is left.
    pub fn is_empty_of(&self, grant: &NamespaceGrant) -> bool {
        let uid = objects_of_grant(grant.metadata.uid.as_deref().unwrap_or_default());
        self.roles.indexed(uid).is_empty() && self.bindings.indexed(uid).is_empty()
    }

    /// Every namespace.
    pub fn all_namespaces(&self) -> Vec<Key> {
        let names = self.namespaces.names().into_iter();
        names.map(|name| Key::Namespace(name.name)).collect()
    }

    /// Every grant.
    pub fn all_grants(&self) -> Vec<Key> {
        let names = self.grants.names().into_iter();
        names.map(|name| Key::Grant(name.name)).collect()
    }

    /// The grants that are being deleted: they wait for the last of what they made.
    pub fn deleted_grants(&self) -> Vec<Key> {
        let grants = self.grants.all().into_iter();
        grants
            .filter(|(_, active)| active.grant.metadata.deletion_timestamp.is_some())
            .map(|(name, _)| Key::Grant(name.name))
            .collect()
    }
}

/// The objects that grants made, by uid: such an object stays a grant's, even if owner, label and managed fields are removed
/// from it.
#[derive(Default)]
pub struct OwnObjects {
    uids: Mutex<HashMap<(Kind, Name), u64>>,
}

impl OwnObjects {
    /// Takes in a change of an object.
    pub fn take<K: Resource>(&self, kind: Kind, change: &Change<'_, K>) {
        self.record(
            kind,
            &change.name,
            change.new.as_ref().map(|object| object.meta()),
        );
    }

    /// Records an object if a grant made it, and forgets one that is gone.
    pub fn record(&self, kind: Kind, name: &Name, meta: Option<&ObjectMeta>) {
        let granted = meta.filter(|meta| is_granted(meta, self.contains(kind, name, meta.uid.as_deref())));
        let mut uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, name.clone());
        match granted {
            Some(meta) => uids.insert(key, index_key(meta.uid.as_deref())),
            None => uids.remove(&key),
        };
    }

    /// Returns true if a grant made the object of this uid.
    pub fn contains(&self, kind: Kind, name: &Name, uid: Option<&str>) -> bool {
        let uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        uids.get(&(kind, name.clone())) == Some(&index_key(uid))
    }
}
