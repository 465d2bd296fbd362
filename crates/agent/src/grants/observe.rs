//! The caches of the managed cluster: namespaces, grants, and what grants made.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt as _};
use writ_api::writ::NamespaceGrant;

use super::{
    object::Object,
    ownership::{Live, written},
    plan::{Active, Kind},
    status::Outcome,
};

/// What a change makes necessary to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// What a namespace holds.
    Namespace(String),
    /// What a grant reports.
    Grant(String),
}

/// What is known of the managed cluster. Objects that no grant made are kept by name only.
#[derive(Debug, Default)]
pub struct Known {
    state: Mutex<State>,
}

/// The content of [`Known`].
#[derive(Debug, Default)]
pub struct State {
    /// Namespaces that are not going, with their labels.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The grants.
    pub grants: BTreeMap<String, Active>,
    /// Roles and RoleBindings by namespace.
    pub objects: HashMap<String, BTreeMap<(Kind, String), Live>>,
    /// What became of each grant in each namespace.
    pub outcomes: HashMap<String, BTreeMap<String, Outcome>>,
}

impl Known {
    /// The content.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The namespaces that a grant selects.
    pub fn selected(&self, active: &Active) -> BTreeSet<String> {
        self.namespaces
            .iter()
            .filter(|(_, labels)| active.selects(labels))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Every namespace that is there or holds something that a grant made.
    pub fn all_namespaces(&self) -> BTreeSet<String> {
        self.namespaces
            .keys()
            .chain(self.objects.keys())
            .cloned()
            .collect()
    }
}

/// A kind that is watched: how it changes what is known, and what has to be looked at then.
pub trait Followed: Resource + Sized {
    /// What the watch is called.
    const WHAT: &'static str;

    /// Takes a new or changed object in.
    fn put(self, state: &mut State) -> Vec<Key>;

    /// Forgets an object.
    fn remove(self, state: &mut State) -> Vec<Key>;

    /// Forgets every object that is not among these, after the watch had to start again.
    fn retain(names: &BTreeSet<(String, String)>, state: &mut State) -> Vec<Key>;
}

impl Followed for Namespace {
    const WHAT: &'static str = "Namespaces";

    fn put(self, state: &mut State) -> Vec<Key> {
        let name = self.name_any();
        if self.metadata.deletion_timestamp.is_some() {
            return self.remove(state);
        }
        let labels = self.metadata.labels.unwrap_or_default();
        if state.namespaces.insert(name.clone(), labels.clone()) == Some(labels) {
            return Vec::new();
        }
        namespace_changed(state, name)
    }

    fn remove(self, state: &mut State) -> Vec<Key> {
        let name = self.name_any();
        if state.namespaces.remove(&name).is_none() {
            return Vec::new();
        }
        namespace_changed(state, name)
    }

    fn retain(names: &BTreeSet<(String, String)>, state: &mut State) -> Vec<Key> {
        let gone: Vec<String> = state
            .namespaces
            .keys()
            .filter(|name| !names.contains(&(String::new(), (*name).clone())))
            .cloned()
            .collect();
        let mut keys = Vec::new();
        for name in gone {
            state.namespaces.remove(&name);
            keys.extend(namespace_changed(state, name));
        }
        keys
    }
}

/// A namespace came, went or was labelled: what it holds, and what every grant reports.
fn namespace_changed(state: &State, name: String) -> Vec<Key> {
    let grants = state.grants.keys().cloned().map(Key::Grant);
    grants.chain([Key::Namespace(name)]).collect()
}

impl Followed for NamespaceGrant {
    const WHAT: &'static str = "NamespaceGrants";

    fn put(mut self, state: &mut State) -> Vec<Key> {
        self.metadata.managed_fields = None;
        let name = self.name_any();
        let version = |meta: &ObjectMeta| {
            (
                meta.uid.clone(),
                meta.generation,
                meta.deletion_timestamp.is_some(),
            )
        };
        let now = version(&self.metadata);
        let before = state.grants.insert(name.clone(), Active::new(self));
        let before = before.map(|before| version(&before.grant.metadata));
        if before.as_ref().is_some_and(|before| before.0 != now.0) {
            // Made again while nobody looked: what became of the former one says nothing about this one.
            state.outcomes.remove(&name);
        }
        if before == Some(now) {
            // Somebody may have changed the status.
            return vec![Key::Grant(name)];
        }
        grant_changed(state, name)
    }

    fn remove(self, state: &mut State) -> Vec<Key> {
        let name = self.name_any();
        state.grants.remove(&name);
        state.outcomes.remove(&name);
        grant_changed(state, name)
    }

    fn retain(names: &BTreeSet<(String, String)>, state: &mut State) -> Vec<Key> {
        let before = state.grants.len();
        state
            .grants
            .retain(|name, _| names.contains(&(String::new(), name.clone())));
        let grants = &state.grants;
        state.outcomes.retain(|name, _| grants.contains_key(name));
        if state.grants.len() == before {
            return Vec::new();
        }
        state.all_namespaces().into_iter().map(Key::Namespace).collect()
    }
}

fn grant_changed(state: &State, name: String) -> Vec<Key> {
    let namespaces = state.all_namespaces().into_iter().map(Key::Namespace);
    namespaces.chain([Key::Grant(name)]).collect()
}

impl Followed for Role {
    const WHAT: &'static str = "Roles";

    fn put(self, state: &mut State) -> Vec<Key> {
        put_object(state, Kind::Role, Object::Role(Box::new(self)))
    }

    fn remove(self, state: &mut State) -> Vec<Key> {
        remove_object(state, Kind::Role, &self)
    }

    fn retain(names: &BTreeSet<(String, String)>, state: &mut State) -> Vec<Key> {
        retain_objects(state, Kind::Role, names)
    }
}

impl Followed for RoleBinding {
    const WHAT: &'static str = "RoleBindings";

    fn put(self, state: &mut State) -> Vec<Key> {
        put_object(state, Kind::RoleBinding, Object::RoleBinding(Box::new(self)))
    }

    fn remove(self, state: &mut State) -> Vec<Key> {
        remove_object(state, Kind::RoleBinding, &self)
    }

    fn retain(names: &BTreeSet<(String, String)>, state: &mut State) -> Vec<Key> {
        retain_objects(state, Kind::RoleBinding, names)
    }
}

fn put_object(state: &mut State, kind: Kind, mut object: Object) -> Vec<Key> {
    let meta = object.meta_mut();
    let written = written(meta.managed_fields.take().as_deref());
    let namespace = meta.namespace.clone().unwrap_or_default();
    let key = (kind, meta.name.clone().unwrap_or_default());
    let objects = state.objects.entry(namespace.clone()).or_default();
    let live = Live::seen(object, written, objects.get(&key));
    objects.insert(key, live);
    vec![Key::Namespace(namespace)]
}

fn remove_object<K: Resource>(state: &mut State, kind: Kind, object: &K) -> Vec<Key> {
    let meta = object.meta();
    let namespace = meta.namespace.clone().unwrap_or_default();
    if let Some(objects) = state.objects.get_mut(&namespace) {
        objects.remove(&(kind, meta.name.clone().unwrap_or_default()));
        if objects.is_empty() {
            state.objects.remove(&namespace);
        }
    }
    // A grant that goes waits for the last of what it made.
    let going = |active: &&Active| active.grant.metadata.deletion_timestamp.is_some();
    let grants = state.grants.values().filter(going);
    let grants = grants.map(|active| Key::Grant(active.grant.name_any()));
    grants.chain([Key::Namespace(namespace)]).collect()
}

fn retain_objects(state: &mut State, kind: Kind, names: &BTreeSet<(String, String)>) -> Vec<Key> {
    let mut keys = Vec::new();
    state.objects.retain(|namespace, objects| {
        let before = objects.len();
        objects.retain(|(k, name), _| *k != kind || names.contains(&(namespace.clone(), name.clone())));
        if objects.len() != before {
            keys.push(Key::Namespace(namespace.clone()));
        }
        !objects.is_empty()
    });
    keys
}
