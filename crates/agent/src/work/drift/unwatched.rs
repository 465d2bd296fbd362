//! What the index knows of objects where the agent may not watch a whole kind.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use kube::core::ApiResource;

use super::{
    index::{DriftIndex, Need},
    watch_scope::WatchScope,
};
use crate::work::model::Key;
use writ_controller::Name;

impl DriftIndex {
    /// Whether any work has objects of this kind.
    pub fn has_objects(&self, resource: &ApiResource) -> bool {
        let index = self.lock();
        let of_kind = index.kinds.get(resource);
        of_kind.is_some_and(|of_kind| !of_kind.objects.is_empty())
    }

    /// For each namespace with objects of this kind, the part of it that has to be watched; the namespace of
    /// cluster-scoped objects is empty.
    pub fn scopes_by_namespace(&self, resource: &ApiResource) -> BTreeMap<Arc<str>, WatchScope> {
        let index = self.lock();
        let mut by_namespace: BTreeMap<Arc<str>, Vec<&Name>> = BTreeMap::new();
        let of_kind = index.kinds.get(resource);
        for name in of_kind.into_iter().flat_map(|of_kind| of_kind.objects.keys()) {
            by_namespace.entry(name.namespace.clone()).or_default().push(name);
        }
        by_namespace
            .into_iter()
            .filter_map(|(namespace, names)| Some((namespace, WatchScope::around(names.into_iter())?)))
            .collect()
    }

    /// The works with objects of a kind that have such names.
    pub fn keys_for(&self, resource: &ApiResource, is_meant: impl Fn(&Name) -> bool) -> HashSet<Key> {
        let index = self.lock();
        let of_kind = index.kinds.get(resource);
        let objects = of_kind.into_iter().flat_map(|of_kind| &of_kind.objects);
        objects
            .filter(|(name, _)| is_meant(name))
            .flat_map(|(_, works)| works.0.iter().map(|(key, _)| key.clone()))
            .collect()
    }

    /// Objects of a kind that are not watched may have changed: they are written and reported again. Returns their works.
    pub fn distrust(&self, resource: &ApiResource, is_meant: impl Fn(&Name) -> bool) -> HashSet<Key> {
        let mut index = self.lock();
        let of_kind = index.kinds.get_mut(resource);
        let objects = of_kind.into_iter().flat_map(|of_kind| &mut of_kind.objects);
        let mut keys = HashSet::new();
        for (key, object) in objects
            .filter(|(name, _)| is_meant(name))
            .flat_map(|(_, works)| &mut works.0)
        {
            if let Some(last_seen) = &object.last_seen {
                object.need = Some(Need::Write);
                // A write that changes nothing corrects no drift.
                object.newest = object.newest.max(last_seen.fingerprint.version);
            }
            object.reported = None;
            keys.insert(key.clone());
        }
        keys
    }
}
