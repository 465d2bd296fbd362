//! A cache of packed objects: a hub may hold many thousands of permissions and works, and each is looked at only when
//! something about it changes.

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::{Resource, ResourceExt as _, runtime::watcher::Event};
use serde::{Serialize, de::DeserializeOwned};
use writ_runtime::packed;

use super::watches::Key;

/// What a watch has shown, by namespace and name. Clones are the same cache.
pub struct Packed<K> {
    inner: Arc<RwLock<Inner>>,
    /// Whose name the entries are found by besides their own: an owner's.
    owner: fn(&K) -> Option<&String>,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Packed<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: self.owner,
            of: PhantomData,
        }
    }
}

#[derive(Default)]
struct Inner {
    /// In the order of their namespaces, so that those of one are found without a look at the others.
    objects: BTreeMap<Key, Entry>,
    /// What a list that is not complete has shown.
    listed: BTreeMap<Key, Entry>,
}

struct Entry {
    owner: Option<Box<str>>,
    packed: Box<[u8]>,
}

impl<K> Packed<K>
where
    K: Resource + Serialize + DeserializeOwned,
{
    /// An empty cache; `owner` tells whom an object belongs to.
    pub fn new(owner: fn(&K) -> Option<&String>) -> Self {
        Self {
            inner: Arc::default(),
            owner,
            of: PhantomData,
        }
    }

    /// Takes in what a watch shows.
    pub fn take(&self, event: &Event<K>) {
        let mut inner = self.write();
        match event {
            Event::Init => inner.listed.clear(),
            Event::InitApply(object) => {
                let (key, entry) = self.pack(object);
                inner.listed.extend(entry.map(|entry| (key, entry)));
            }
            Event::InitDone => {
                inner.objects = std::mem::take(&mut inner.listed);
            }
            Event::Apply(object) => {
                let (key, entry) = self.pack(object);
                inner.objects.extend(entry.map(|entry| (key, entry)));
            }
            Event::Delete(object) => {
                inner.objects.remove(&key(object));
            }
        }
    }

    /// The object of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<K> {
        let key = Key {
            namespace: namespace.into(),
            name: name.into(),
        };
        self.read().objects.get(&key).and_then(unpack)
    }

    /// The objects in a namespace that belong to an owner of that name and have a name of this sort.
    pub fn owned(&self, namespace: &str, owner: &str, named: impl Fn(&str) -> bool) -> Vec<K> {
        let first = Key {
            namespace: namespace.into(),
            name: String::new(),
        };
        self.read()
            .objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace)
            .filter(|(key, entry)| entry.owner.as_deref() == Some(owner) && named(&key.name))
            .filter_map(|(_, entry)| unpack(entry))
            .collect()
    }

    fn pack(&self, object: &K) -> (Key, Option<Entry>) {
        let owner = (self.owner)(object).map(|owner| owner.as_str().into());
        // What was just read as JSON can be written as JSON.
        let entry = packed::pack(object).ok().map(|packed| Entry { owner, packed });
        (key(object), entry)
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key<K: Resource>(object: &K) -> Key {
    Key {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

fn unpack<K: DeserializeOwned>(entry: &Entry) -> Option<K> {
    packed::unpack(&entry.packed).ok()
}

#[cfg(test)]
mod tests {
    use writ_api::work::ManifestWork;

    use super::*;

    fn work(name: &str, spec: u8) -> ManifestWork {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": name, "namespace": "c", "resourceVersion": spec.to_string()},
            "spec": {"workload": {"manifests": [{"kind": "X", "n": spec}]}},
        }))
        .unwrap()
    }

    #[test]
    fn shows_what_the_watch_showed_and_a_list_only_when_it_is_complete() {
        let cache: Packed<ManifestWork> = Packed::new(|work| work.metadata.name.as_ref());
        cache.take(&Event::Init);
        cache.take(&Event::InitApply(work("a", 1)));
        assert!(cache.get("c", "a").is_none(), "the list is not complete");
        cache.take(&Event::InitDone);
        assert_eq!(cache.get("c", "a"), Some(work("a", 1)));
        cache.take(&Event::Apply(work("a", 2)));
        cache.take(&Event::Apply(work("b", 1)));
        assert_eq!(cache.get("c", "a"), Some(work("a", 2)));
        assert_eq!(cache.owned("c", "b", |_| true), [work("b", 1)]);
        assert!(cache.owned("c", "b", |name| name != "b").is_empty());
        assert!(cache.owned("d", "b", |_| true).is_empty());
        cache.take(&Event::Delete(work("b", 1)));
        assert!(cache.get("c", "b").is_none());
        // The watch starts again: what is not listed is gone.
        cache.take(&Event::Init);
        assert!(cache.get("c", "a").is_some());
        cache.take(&Event::InitDone);
        assert!(cache.get("c", "a").is_none());
    }
}
