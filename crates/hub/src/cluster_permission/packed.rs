//! A cache of packed objects: a hub may hold many thousands of permissions and works, and each is looked at only when
//! something about it changes.

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::{Resource, ResourceExt as _, runtime::watcher::Event};
use serde::{Serialize, de::DeserializeOwned};
use writ_controller::packed;

use super::watches::Key;

/// What a watch has shown, by namespace and name. Clones are the same cache.
pub struct Packed<K> {
    inner: Arc<RwLock<Inner>>,
    /// Whose name the entries are found by besides their own: an owner's.
    owner: fn(&K) -> Option<&String>,
    /// What entries of one namespace can have in common, as short signs.
    signs: fn(&K) -> Box<[u64]>,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Packed<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: self.owner,
            signs: self.signs,
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
    signs: Box<[u64]>,
    /// What it asks for is the same as long as these are.
    generation: Option<i64>,
    going: bool,
    packed: Box<[u8]>,
}

impl Inner {
    fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Entry)> {
        let first = Key {
            namespace: namespace.into(),
            name: String::new(),
        };
        let from = self.objects.range(first..);
        from.take_while(move |(key, _)| key.namespace == namespace)
    }

    fn sharing(&self, key: &Key, signs: &[u64]) -> Vec<Key> {
        if signs.is_empty() {
            return Vec::new();
        }
        let others = self.within(&key.namespace).filter(|(other, _)| *other != key);
        others
            .filter(|(_, entry)| entry.signs.iter().any(|sign| signs.contains(sign)))
            .map(|(other, _)| other.clone())
            .collect()
    }
}

impl<K> Packed<K>
where
    K: Resource + Serialize + DeserializeOwned,
{
    /// An empty cache; `owner` tells whom an object belongs to, `signs` what it can have in common with others.
    pub fn new(owner: fn(&K) -> Option<&String>, signs: fn(&K) -> Box<[u64]>) -> Self {
        Self {
            inner: Arc::default(),
            owner,
            signs,
            of: PhantomData,
        }
    }

    /// Takes in what a watch shows. Returns the others that have something in common with what was there or is now,
    /// if what it asks for has changed.
    pub fn take(&self, event: &Event<K>) -> Vec<Key> {
        let mut inner = self.write();
        let (key, before) = match event {
            Event::Init => {
                inner.listed.clear();
                return Vec::new();
            }
            Event::InitApply(object) => {
                let (key, entry) = self.pack(object);
                inner.listed.extend(entry.map(|entry| (key, entry)));
                return Vec::new();
            }
            Event::InitDone => {
                inner.objects = std::mem::take(&mut inner.listed);
                return Vec::new();
            }
            Event::Apply(object) => {
                let (key, entry) = self.pack(object);
                let before = entry.and_then(|entry| inner.objects.insert(key.clone(), entry));
                (key, before)
            }
            Event::Delete(object) => {
                let key = key(object);
                let before = inner.objects.remove(&key);
                (key, before)
            }
        };
        let now = inner.objects.get(&key);
        let asks = |entry: &Entry| (entry.generation, entry.going);
        if before.as_ref().map(asks) == now.map(asks) {
            return Vec::new();
        }
        let signs = before.iter().chain(now).map(|entry| &entry.signs);
        let signs: Vec<u64> = signs.flatten().copied().collect();
        inner.sharing(&key, &signs)
    }

    /// The others that have something in common with this one.
    pub fn neighbours(&self, key: &Key) -> Vec<Key> {
        let inner = self.read();
        let signs = inner.objects.get(key).map(|entry| &entry.signs);
        signs.map_or_else(Vec::new, |signs| inner.sharing(key, signs))
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
        self.read()
            .within(namespace)
            .filter(|(key, entry)| entry.owner.as_deref() == Some(owner) && named(&key.name))
            .filter_map(|(_, entry)| unpack(entry))
            .collect()
    }

    fn pack(&self, object: &K) -> (Key, Option<Entry>) {
        let owner = (self.owner)(object).map(|owner| owner.as_str().into());
        let signs = (self.signs)(object);
        // What was just read as JSON can be written as JSON.
        let entry = packed::pack(object).ok().map(|packed| Entry {
            owner,
            signs,
            generation: object.meta().generation,
            going: object.meta().deletion_timestamp.is_some(),
            packed,
        });
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
            "metadata": {"name": name, "namespace": "c", "resourceVersion": spec.to_string(), "generation": spec},
            "spec": {"workload": {"manifests": [{"kind": "X", "n": spec}]}},
        }))
        .unwrap()
    }

    #[test]
    fn shows_what_the_watch_showed_and_a_list_only_when_it_is_complete() {
        let cache: Packed<ManifestWork> = Packed::new(|work| work.metadata.name.as_ref(), |_| Box::default());
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
    #[test]
    fn tells_who_has_something_in_common_before_and_after() {
        let signs = |work: &ManifestWork| -> Box<[u64]> {
            let manifests = work.spec.workload.manifests.iter();
            manifests.filter_map(|m| m.0["n"].as_u64()).collect()
        };
        let cache: Packed<ManifestWork> = Packed::new(|_| None, signs);
        let key = |name: &str| Key {
            namespace: "c".into(),
            name: name.into(),
        };
        assert!(cache.take(&Event::Apply(work("a", 1))).is_empty());
        assert_eq!(cache.take(&Event::Apply(work("b", 1))), [key("a")]);
        assert_eq!(cache.neighbours(&key("a")), [key("b")]);
        assert_eq!(cache.take(&Event::Apply(work("b", 2))), [key("a")], "what it had");
        assert!(cache.take(&Event::Apply(work("b", 2))).is_empty());
        assert!(cache.neighbours(&key("a")).is_empty());
        assert_eq!(cache.take(&Event::Apply(work("c", 2))), [key("b")], "what it has");
        assert_eq!(cache.take(&Event::Delete(work("c", 2))), [key("b")]);
        let mut elsewhere = work("d", 2);
        elsewhere.metadata.namespace = Some("d".into());
        assert!(cache.take(&Event::Apply(elsewhere)).is_empty());
    }
}
