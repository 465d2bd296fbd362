//! The objects of one watched kind, kept as compact JSON: small when idle, parsed when needed.

use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use writ_runtime::Error;

/// A resource version as a number; servers count upwards, so a larger one is newer.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

struct Entry {
    version: u64,
    uid: Box<str>,
    generation: Option<i64>,
    /// When this generation was first seen.
    since: Instant,
    json: Box<[u8]>,
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
        let mut new = Entry {
            version: version(object.resource_version().as_deref()),
            uid: object.uid().unwrap_or_default().into(),
            generation: object.meta().generation,
            since: Instant::now(),
            json: serde_json::to_vec(object)
                .map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))?
                .into(),
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
        let entries = self.lock();
        let Some(entry) = entries.get(name) else {
            return Ok(None);
        };
        serde_json::from_slice(&entry.json)
            .map(Some)
            .map_err(|e| Error::Invalid(format!("{name} cannot be understood: {e}")))
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
