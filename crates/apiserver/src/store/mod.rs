//! Storage: tables of objects under one growing resourceVersion, with enough history to watch and to page.
//!
//! Writers compare and swap: they say what they saw, and are refused when it is no longer so. A watcher holds a cursor, not a
//! queue: it reads the table's recent history at its own pace, and is told when history no longer reaches back to it. So a slow
//! watcher costs a number and blocks nobody.

mod object;
mod persist;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use serde_json::Value;
use tokio::sync::watch;

pub(crate) use object::{Object, TableId, Uid, key_of, new_uid, uid_of};
pub use persist::OpenError;

use table::{Inner, range};

/// The largest object: what etcd takes in one request. Kinds whose content is limited to less are not asked.
const LARGEST: usize = 3 << 19;
const LIMITED: [&str; 2] = ["configmaps", "secrets"];

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One entry of history.
#[derive(Debug)]
pub(crate) struct Event {
    pub change: Change,
    pub rv: u64,
    /// The object after the change; for a deletion its last state under the deletion's resourceVersion.
    pub object: Arc<Object>,
    pub previous: Option<Arc<Object>>,
}

/// Told about every change while the writer still holds the store, in order: keep it short.
pub(crate) trait Observer: Send + Sync {
    fn changed(&self, event: &Event, value: &Value);
}

/// Why a write was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is one already.
    Exists,
    /// It is not the one that the writer saw.
    Changed,
    /// There is none.
    Missing,
    /// It is larger than an object may be.
    TooLarge,
}

/// What the writer saw before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expect {
    Absent,
    At(u64),
}

/// All objects of one server.
pub(crate) struct Store {
    inner: RwLock<Inner>,
    observer: OnceLock<Arc<dyn Observer>>,
    disk: Option<persist::Disk>,
    closed: Mutex<bool>,
}

/// A range of a table at one moment.
pub(crate) struct Page {
    pub objects: Vec<Arc<Object>>,
    pub rv: u64,
    /// How many match the range after this page.
    pub remaining: usize,
}

/// What a watcher gets when it asks for news.
pub(crate) enum News {
    /// Events after the cursor, and the resourceVersion up to which that is everything.
    Events(Vec<Arc<Event>>, u64),
    /// History does not reach back to the cursor; the oldest known version is given.
    Gone(u64),
}

fn read(inner: &RwLock<Inner>) -> RwLockReadGuard<'_, Inner> {
    inner.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the texts and names in a value are no longer than what is left.
fn fits(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.len(),
        Value::Object(map) => map.keys().map(|name| name.len() + 3).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    };
    let Some(rest) = left.checked_sub(own) else {
        return false;
    };
    *left = rest;
    match value {
        Value::Array(list) => list.iter().all(|item| fits(item, left)),
        Value::Object(map) => map.values().all(|field| fits(field, left)),
        _ => true,
    }
}

impl Store {
    /// An empty store in memory, or what a folder holds.
    pub fn open(folder: Option<&Path>) -> Result<Self, OpenError> {
        let mut inner = Inner {
            rv: 1,
            ..Inner::default()
        };
        let disk = match folder {
            None => None,
            Some(folder) => {
                let (disk, rv, objects) = persist::Disk::open(folder)?;
                inner.rv = rv;
                // What happened before is not known, of tables that are empty now no less than of others.
                inner.floor = rv;
                for object in objects {
                    inner.index(&Arc::new(object));
                }
                Some(disk)
            }
        };
        Ok(Self {
            inner: RwLock::new(inner),
            observer: OnceLock::new(),
            disk,
            closed: Mutex::new(false),
        })
    }

    /// Sets the one who is told about changes, and tells it about everything that is there already.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for table in inner.tables.values() {
            for object in table.objects.values() {
                let event = Event {
                    change: Change::Added,
                    rv: object.rv,
                    object: object.clone(),
                    previous: None,
                };
                observer.changed(&event, &object.value());
            }
        }
        drop(self.observer.set(observer));
    }

    /// The newest resourceVersion.
    pub fn rv(&self) -> u64 {
        read(&self.inner).rv
    }

    pub fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        read(&self.inner).tables.get(table)?.objects.get(key).cloned()
    }

    pub fn by_uid(&self, uid: Uid) -> Option<Arc<Object>> {
        read(&self.inner).uids.get(&uid).cloned()
    }

    /// Those that name `uid` as an owner.
    pub fn dependents(&self, uid: Uid) -> Vec<Arc<Object>> {
        read(&self.inner).dependents(uid).cloned().collect()
    }

    pub fn has_dependents(&self, uid: Uid) -> bool {
        read(&self.inner).dependents(uid).next().is_some()
    }

    /// Everything in one table, or in one namespace of it.
    pub fn list(&self, table: &str, namespace: Option<&str>) -> (Vec<Arc<Object>>, u64) {
        let inner = read(&self.inner);
        let objects = inner.tables.get(table).map_or_else(Vec::new, |table| {
            range(&table.objects, namespace, None)
                .map(|(_, object)| object.clone())
                .collect()
        });
        (objects, inner.rv)
    }

    /// The first object of a table that is so.
    pub fn find(&self, table: &str, is_so: impl Fn(&Object) -> bool) -> Option<Arc<Object>> {
        let inner = read(&self.inner);
        let mut objects = inner.tables.get(table)?.objects.values();
        objects.find(|object| is_so(object)).cloned()
    }

    /// How many objects a table holds.
    pub fn count(&self, table: &str) -> usize {
        read(&self.inner)
            .tables
            .get(table)
            .map_or(0, |table| table.objects.len())
    }

    /// Names of the tables that hold something in `namespace`.
    pub fn tables_in(&self, namespace: &str) -> Vec<TableId> {
        let inner = read(&self.inner);
        inner
            .tables
            .iter()
            .filter(|(_, table)| range(&table.objects, Some(namespace), None).next().is_some())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// A page that starts after the key `after`, as the table was at `at` (now, if not given).
    ///
    /// `keep` chooses; `None` is returned when history does not reach back to `at`.
    pub fn page(
        &self,
        table: &str,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
        at: Option<u64>,
        keep: &dyn Fn(&Object) -> bool,
    ) -> Result<Page, u64> {
        let inner = read(&self.inner);
        let rv = at.unwrap_or(inner.rv);
        let Some(table) = inner.tables.get(table) else {
            if rv < inner.floor {
                return Err(inner.rv);
            }
            return Ok(Page {
                objects: Vec::new(),
                rv,
                remaining: 0,
            });
        };
        let mut objects = Vec::new();
        let mut remaining = 0;
        let mut take = |object: &Arc<Object>| {
            if keep(object) {
                if limit == 0 || objects.len() < limit {
                    objects.push(object.clone());
                } else {
                    remaining += 1;
                }
            }
        };
        if table.history.back().is_none_or(|last| last.rv <= rv) && rv >= table.floor {
            range(&table.objects, namespace, after).for_each(|(_, object)| take(object));
        } else if rv < table.floor {
            return Err(inner.rv);
        } else {
            let mut then = table.objects.clone();
            for event in table.history.iter().rev().take_while(|event| event.rv > rv) {
                match &event.previous {
                    Some(previous) => drop(then.insert(previous.key.clone(), previous.clone())),
                    None => drop(then.remove(&event.object.key)),
                }
            }
            range(&then, namespace, after).for_each(|(_, object)| take(object));
        }
        Ok(Page {
            objects,
            rv,
            remaining,
        })
    }

    /// What happened in a table after `cursor`.
    pub fn news(&self, table: &str, cursor: u64) -> News {
        let inner = read(&self.inner);
        let Some(table) = inner.tables.get(table) else {
            return if cursor < inner.floor {
                News::Gone(inner.floor)
            } else {
                News::Events(Vec::new(), inner.rv)
            };
        };
        if cursor < table.floor {
            return News::Gone(table.floor);
        }
        let start = table.history.partition_point(|event| event.rv <= cursor);
        News::Events(table.history.range(start..).cloned().collect(), inner.rv)
    }

    /// A signal that fires when a table changes.
    pub fn signal(&self, table: &TableId) -> watch::Receiver<u64> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let rv = inner.rv;
        inner
            .table(table)
            .signal
            .get_or_insert_with(|| watch::Sender::new(rv))
            .subscribe()
    }

    /// Writes an object if what is there is what was expected, and gives it its resourceVersion.
    pub fn put(&self, table: &TableId, expect: Expect, value: Value) -> Result<Arc<Object>, Refused> {
        let text = |name: &str| value.pointer(name).and_then(Value::as_str).unwrap_or_default();
        let key = key_of(text("/metadata/namespace"), text("/metadata/name"));
        self.put_at(table, key, expect, value)
    }

    /// The same under a key that may be another than the object's name says.
    pub fn put_at(
        &self,
        table: &TableId,
        key: Arc<str>,
        expect: Expect,
        mut value: Value,
    ) -> Result<Arc<Object>, Refused> {
        let is_limited = !LIMITED.contains(&&**table);
        // Defaults can make very much of little: nobody waits while it is written out for nothing.
        let mut left = LARGEST;
        if is_limited && !fits(&value, &mut left) {
            read(&self.inner).check(table, &key, expect)?;
            return Err(Refused::TooLarge);
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let previous = inner.check(table, &key, expect)?;
        let key = previous.as_ref().map_or(key, |previous| previous.key.clone());
        let rv = inner.rv + 1;
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), rv.to_string().into());
        }
        let object = Arc::new(Object::new(table.clone(), key, rv, &value));
        if object.size() > LARGEST && is_limited {
            return Err(Refused::TooLarge);
        }
        inner.rv = rv;
        if let Some(previous) = &previous {
            inner.unindex(previous);
        }
        inner.index(&object);
        let change = if previous.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        let event = Arc::new(Event {
            change,
            rv,
            object: object.clone(),
            previous,
        });
        self.publish(&mut inner, &event, &value);
        Ok(object)
    }

    /// Removes an object if it is the one that was expected; returns its last state under the new resourceVersion.
    pub fn remove(&self, table: &TableId, key: &str, expect: Expect) -> Result<Arc<Object>, Refused> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let Some(previous) = inner.check(table, key, expect)? else {
            return Err(Refused::Missing);
        };
        inner.rv += 1;
        let rv = inner.rv;
        let mut value = previous.value();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), rv.to_string().into());
        }
        inner.unindex(&previous);
        let object = Arc::new(Object::new(table.clone(), previous.key.clone(), rv, &value));
        let event = Arc::new(Event {
            change: Change::Deleted,
            rv,
            object: object.clone(),
            previous: Some(previous),
        });
        self.publish(&mut inner, &event, &value);
        Ok(object)
    }

    fn publish(&self, inner: &mut Inner, event: &Arc<Event>, value: &Value) {
        if let Some(table) = inner.tables.get_mut(&event.object.table) {
            table.record(event.clone());
        }
        if let Some(disk) = &self.disk {
            disk.write(event);
        }
        if let Some(observer) = self.observer.get() {
            observer.changed(event, value);
        }
        if let Some(signal) = inner
            .tables
            .get(&event.object.table)
            .and_then(|table| table.signal.as_ref())
        {
            signal.send_replace(event.rv);
        }
    }

    /// Forgets all history, as compaction does: watches from before now answer 410.
    pub fn compact(&self) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let rv = inner.rv;
        for table in inner.tables.values_mut() {
            table.history.clear();
            table.history_bytes = 0;
            table.floor = rv;
        }
        inner.floor = rv;
    }

    /// Drops a whole table and its history, as when its CustomResourceDefinition goes. Only empty tables are dropped.
    pub fn forget(&self, table: &str) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.tables.get(table).is_some_and(|t| t.objects.is_empty()) {
            inner.tables.remove(table);
            // Whoever watched it is told so, should there be such a table again.
            inner.floor = inner.rv;
        }
    }

    /// Waits until everything up to `rv` is on disk. At once without a disk. An error means it never will be.
    pub async fn durable(&self, rv: u64) -> Result<(), String> {
        match &self.disk {
            None => Ok(()),
            Some(disk) => disk.durable(rv).await,
        }
    }

    /// An error if no write can be kept any more.
    pub fn writable(&self) -> Result<(), String> {
        self.disk.as_ref().map_or(Ok(()), persist::Disk::writable)
    }

    /// A small value kept beside the objects, such as a key.
    pub fn secret(&self, name: &str) -> Option<Vec<u8>> {
        self.disk.as_ref()?.secret(name)
    }

    /// Keeps a small value beside the objects.
    pub fn keep_secret(&self, name: &str, value: &[u8]) -> Result<(), OpenError> {
        self.disk
            .as_ref()
            .map_or(Ok(()), |disk| disk.keep_secret(name, value))
    }

    /// Ends all watches and writes what is pending.
    pub fn close(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*closed {
            *closed = true;
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            for table in inner.tables.values_mut() {
                table.signal = None;
            }
            if let Some(disk) = &self.disk {
                disk.close();
            }
        }
    }
}
