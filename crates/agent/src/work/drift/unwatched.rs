//! What has to be known of objects where the agent may not watch a whole kind.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use kube::core::ApiResource;

use super::{Key, Name, Need, Objects, Scope};

impl Objects {
    /// Whether objects of this kind matter to anybody.
    pub fn has(&self, resource: &ApiResource) -> bool {
        let known = self.lock();
        let of_kind = known.kinds.get(resource);
        of_kind.is_some_and(|of_kind| !of_kind.objects.is_empty())
    }

    /// For each namespace with objects of this kind, the part of it that has to be watched; the namespace of
    /// cluster-scoped objects is empty.
    pub fn parts(&self, resource: &ApiResource) -> BTreeMap<Arc<str>, Scope> {
        let known = self.lock();
        let mut by_namespace: BTreeMap<Arc<str>, Vec<&Name>> = BTreeMap::new();
        let of_kind = known.kinds.get(resource);
        for name in of_kind.into_iter().flat_map(|of_kind| of_kind.objects.keys()) {
            by_namespace.entry(name.0.clone()).or_default().push(name);
        }
        by_namespace
            .into_iter()
            .filter_map(|(namespace, names)| Some((namespace, Scope::around(names.into_iter())?)))
            .collect()
    }

    /// Those to whom such objects of a kind matter.
    pub fn holders(&self, resource: &ApiResource, such: impl Fn(&Name) -> bool) -> HashSet<Key> {
        let known = self.lock();
        let of_kind = known.kinds.get(resource);
        let objects = of_kind.into_iter().flat_map(|of_kind| &of_kind.objects);
        objects
            .filter(|(name, _)| such(name))
            .flat_map(|(_, keys)| keys.0.iter().map(|(key, _)| key.clone()))
            .collect()
    }

    /// Such objects of a kind may have changed, as nobody watches them; returns who has to look.
    pub fn doubt(&self, resource: &ApiResource, such: impl Fn(&Name) -> bool) -> HashSet<Key> {
        let mut known = self.lock();
        let of_kind = known.kinds.get_mut(resource);
        let objects = of_kind.into_iter().flat_map(|of_kind| &mut of_kind.objects);
        let mut wake = HashSet::new();
        for (key, watched) in objects
            .filter(|(name, _)| such(name))
            .flat_map(|(_, keys)| &mut keys.0)
        {
            if let Some(mark) = &watched.mark {
                watched.need = Some(Need::Write);
                // A write that changes nothing undoes nothing.
                watched.latest = watched.latest.max(mark.seen.version);
            }
            watched.told = None;
            wake.insert(key.clone());
        }
        wake
    }
}
