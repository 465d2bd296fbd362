//! What all servers of a process share, so that a thousand idle clusters hold one copy of each compiled schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::Value;
use sha2::Digest;

use super::{CrdProblem, Resource, Snapshot};
use crate::schema::Schema;

type Key = [u8; 32];

/// Things kept as long as somebody uses them, found by the hash of what they were made from.
struct Pool<T>(Mutex<HashMap<Key, Weak<T>>>);

impl<T> Pool<T> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn get<E>(&self, key: Key, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let found = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .and_then(Weak::upgrade);
        if let Some(found) = found {
            return Ok(found);
        }
        // Made outside the lock: two servers may do the same work once, none waits for another's schema.
        let new = Arc::new(make()?);
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever was first has it already, and would take another one for a change.
        if let Some(first) = pool.get(&key).and_then(Weak::upgrade) {
            return Ok(first);
        }
        pool.retain(|_, kept| kept.strong_count() > 0);
        pool.insert(key, Arc::downgrade(&new));
        Ok(new)
    }
}

fn hash(value: &Value) -> Key {
    sha2::Sha256::digest(value.to_string()).into()
}

pub(super) fn schema(openapi: &Value) -> Result<Arc<Schema>, CrdProblem> {
    static POOL: OnceLock<Pool<Schema>> = OnceLock::new();
    POOL.get_or_init(Pool::new).get(hash(openapi), || {
        Schema::compile(openapi).map_err(|causes| {
            CrdProblem(
                causes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            )
        })
    })
}

pub(super) fn resource(
    spec: &Value,
    make: impl FnOnce() -> Result<Resource, CrdProblem>,
) -> Result<Arc<Resource>, CrdProblem> {
    static POOL: OnceLock<Pool<Resource>> = OnceLock::new();
    POOL.get_or_init(Pool::new).get(hash(spec), make)
}

/// The built-in resources.
pub(super) fn builtin() -> Arc<Snapshot> {
    static BUILTIN: OnceLock<Arc<Snapshot>> = OnceLock::new();
    BUILTIN
        .get_or_init(|| {
            let mut snapshot = Snapshot::default();
            for resource in super::builtin_kind::resources() {
                snapshot.add(Arc::new(resource));
            }
            Arc::new(snapshot)
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_who_make_the_same_at_once_hold_the_same() {
        let pool = Pool::new();
        let mut first = None;
        let second = pool.get([0; 32], || {
            first = pool.get([0; 32], || Ok::<_, ()>(1)).ok();
            Ok::<_, ()>(2)
        });
        assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
    }
}
