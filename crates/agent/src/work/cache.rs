//! The objects of one watched kind, packed: small when idle, parsed when needed.

use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use writ_controller::{
    Error,
    packed::{pack, unpack},
};

use super::drift::resource_version;

struct Entry {
    version: u64,
    uid: Box<str>,
    generation: Option<i64>,
    /// When this generation was first seen.
    since: Instant,
    packed: Box<[u8]>,
    /// Why the object as a whole cannot be understood; what is packed is then no more than its metadata and status.
    problem: Option<Box<str>>,
}

/// Objects by name. Own writes are put in at once, so that the next look sees them.
pub struct Cache<K> {
    entries: Mutex<HashMap<String, Entry>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            kind: PhantomData,
        }
    }
}

impl<K: Resource + Serialize + DeserializeOwned> Cache<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the object, unless a newer one of the same uid is known. Returns whether it was remembered.
    pub fn put(&self, object: &K) -> Result<bool, Error> {
        self.put_with(object, None)
    }

    /// The same for what is left of an object that cannot be understood, and why it cannot.
    pub fn put_with(&self, object: &K, problem: Option<&str>) -> Result<bool, Error> {
        let mut new = Entry {
            version: resource_version(object.resource_version().as_deref()),
            uid: object.uid().unwrap_or_default().into(),
            generation: object.meta().generation,
            since: Instant::now(),
            packed: pack(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))?,
            problem: problem.map(Into::into),
        };
        let mut entries = self.lock();
        if let Some(old) = entries.get(&object.name_any())
            && old.uid == new.uid
        {
            if old.version >= new.version {
                return Ok(false);
            }
            if old.generation == new.generation {
                new.since = old.since;
            }
        }
        entries.insert(object.name_any(), new);
        Ok(true)
    }

    /// Forgets the object.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// The object, if it is known.
    pub fn get(&self, name: &str) -> Result<Option<K>, Error> {
        Ok(self.get_with(name)?.map(|(object, _)| object))
    }

    /// The object, if it is known, and why it cannot be understood, if so. Both are of one moment: what is left of an
    /// object must never be taken for the whole.
    pub fn get_with(&self, name: &str) -> Result<Option<(K, Option<String>)>, Error> {
        let entries = self.lock();
        let Some(entry) = entries.get(name) else {
            return Ok(None);
        };
        let object =
            unpack(&entry.packed).map_err(|e| Error::Invalid(format!("{name} cannot be understood: {e}")))?;
        Ok(Some((object, entry.problem.as_deref().map(str::to_owned))))
    }

    /// When the object's generation was first seen.
    pub fn since(&self, name: &str) -> Option<Instant> {
        self.lock().get(name).map(|entry| entry.since)
    }

    /// Whether the object is known.
    pub fn contains(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_api::work::ManifestWork;

    use super::*;

    #[test]
    fn what_is_left_of_an_object_is_never_taken_for_the_whole() {
        let work = |version: &str| -> ManifestWork {
            serde_json::from_value(json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": "w", "uid": "u", "resourceVersion": version}, "spec": {},
            }))
            .unwrap()
        };
        let cache = Cache::default();
        let problem = || cache.get_with("w").unwrap().unwrap().1;
        cache.put(&work("1")).unwrap();
        assert_eq!(problem(), None);
        cache.put_with(&work("3"), Some("no sense")).unwrap();
        assert_eq!(problem().as_deref(), Some("no sense"));
        // An older one changes nothing, a newer one all.
        assert!(!cache.put(&work("2")).unwrap());
        assert_eq!(problem().as_deref(), Some("no sense"));
        cache.put(&work("4")).unwrap();
        assert_eq!(problem(), None);
    }
}
