//! The objects of one kind as a watch shows them, shared by every controller of a process that needs them.
//!
//! An object that does not parse counts as absent, except for [`Cache::partial`]. Values are kept whole or compressed;
//! both are read the same way. Subscribers hear of every change in order, after the cache shows it.

pub mod compressed;
mod feed;
mod index;
mod slot;
#[cfg(test)]
mod tests;
pub mod tolerant;
pub mod watch;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kube::Resource;
use tokio::{sync::watch::Sender, time::Instant};

pub use self::feed::Watch;
use self::{
    index::Index,
    slot::{Codec, Seen, Slot},
};
use crate::{Error, Name};

/// A cache of what a watch shows. Cheap to clone; clones show the same.
pub struct Cache<V> {
    shared: Arc<Shared<V>>,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

type Subscriber<V> = Box<dyn Fn(&Event<'_, V>) + Send + Sync>;
type IndexOf<V> = Box<dyn Fn(&V) -> Vec<u64> + Send + Sync>;

struct Shared<V> {
    /// What is watched, in the plural.
    what: String,
    objects: RwLock<Objects<V>>,
    codec: Codec<V>,
    index_of: Option<IndexOf<V>>,
    /// Held while a change is taken in and told, so that subscribers hear changes in order.
    subscribers: Mutex<BTreeMap<u64, Subscriber<V>>>,
    subscribers_made: AtomicU64,
    ready: Sender<bool>,
    /// Whether changes may be missing at the moment.
    is_interrupted: AtomicBool,
}

struct Objects<V> {
    slots: BTreeMap<Name, Slot<V>>,
    index: Index,
}

/// Where an object comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    List,
    Event,
    OwnWrite,
}

/// What subscribers hear.
pub enum Event<'a, V> {
    /// An object came, changed or went.
    Changed(&'a Change<'a, V>),
    /// A list is complete: the first one, or one after an outage.
    Listed,
    /// The watch is interrupted: what the cache shows may be old until changes come again, or until the next list where
    /// [`Watch::relist_after_outage`] was asked for.
    Interrupted,
}

/// One object that came, changed or went.
pub struct Change<'a, V> {
    /// Its name.
    pub name: Name,
    /// What it is now; `None` if it is gone or does not parse.
    pub new: Option<Arc<V>>,
    /// Whether it was in a list, not in an event of its own.
    pub listed: bool,
    /// Whether it is a write of this process, taken in by [`Cache::record`] before the watch showed it.
    pub recorded: bool,
    before: Option<Slot<V>>,
    after: Option<Seen>,
    codec: &'a Codec<V>,
}

impl<V> Change<'_, V> {
    /// What it was before, if it was there and parsed.
    pub fn old(&self) -> Option<Arc<V>> {
        self.before.as_ref().and_then(|slot| slot.value(self.codec))
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        self.after.is_none()
    }

    /// Whether what its owner asks for may have changed: it came, went, is being deleted, or is of another generation.
    /// A change of a kind without generations always counts.
    pub fn input_changed(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.seen.input_differs(after),
            _ => true,
        }
    }
}

impl<V> Cache<V> {
    fn new(what: String, codec: Codec<V>, index_of: Option<IndexOf<V>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                what,
                objects: RwLock::new(Objects {
                    slots: BTreeMap::new(),
                    index: Index::default(),
                }),
                codec,
                index_of,
                subscribers: Mutex::default(),
                subscribers_made: AtomicU64::default(),
                ready: Sender::default(),
                is_interrupted: AtomicBool::default(),
            }),
        }
    }

    /// What is watched, in the plural: `ManagedClusters`.
    pub fn what(&self) -> &str {
        &self.shared.what
    }

    /// Whether the first list is complete.
    pub fn is_ready(&self) -> bool {
        *self.shared.ready.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        let mut ready = self.shared.ready.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// The object of that name.
    pub fn get(&self, name: &Name) -> Option<Arc<V>> {
        self.read().slots.get(name)?.value(&self.shared.codec)
    }

    /// The object of that name as far as it parses, and why it does not parse as a whole. Both are of one moment: a part
    /// is never taken for the whole.
    pub fn partial(&self, name: &Name) -> Option<(Arc<V>, Option<String>)> {
        let objects = self.read();
        let slot = objects.slots.get(name)?;
        let problem = slot.problem.as_deref().map(str::to_owned);
        Some((slot.stored.value(&self.shared.codec)?, problem))
    }

    /// Whether there is an object of that name, even one that does not parse.
    pub fn contains(&self, name: &Name) -> bool {
        self.read().slots.contains_key(name)
    }

    /// When the present generation of the object was first seen.
    pub fn since(&self, name: &Name) -> Option<Instant> {
        self.read().slots.get(name).map(|slot| slot.seen.since)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().slots.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of all objects, in order.
    pub fn names(&self) -> Vec<Name> {
        self.read().slots.keys().cloned().collect()
    }

    /// All objects, in order.
    pub fn all(&self) -> Vec<(Name, Arc<V>)> {
        self.collect(self.read().slots.iter())
    }

    /// The objects of one namespace, in order.
    pub fn in_namespace(&self, namespace: &str) -> Vec<(Name, Arc<V>)> {
        self.collect(within(&self.read().slots, namespace))
    }

    /// How many objects a namespace has.
    pub fn count_in(&self, namespace: &str) -> usize {
        within(&self.read().slots, namespace).count()
    }

    /// The names of the objects with this entry in the index; see [`index_key`].
    pub fn indexed(&self, key: u64) -> Vec<Name> {
        self.read().index.get(key)
    }

    /// The objects with this entry in the index.
    pub fn all_indexed(&self, key: u64) -> Vec<(Name, Arc<V>)> {
        let objects = self.read();
        let names = objects.index.get(key);
        let found = names.into_iter().filter_map(|name| {
            let value = objects.slots.get(&name)?.value(&self.shared.codec)?;
            Some((name, value))
        });
        found.collect()
    }

    /// Hears every change from now on, and of every object that is there already, and whether the watch is interrupted.
    /// Subscribers must not write into the cache. The subscription ends when what is returned is dropped.
    pub fn subscribe(&self, hear: impl Fn(&Event<'_, V>) + Send + Sync + 'static) -> Subscription
    where
        V: Send + Sync + 'static,
    {
        let mut subscribers = self.subscribers();
        for (name, slot) in &self.read().slots {
            hear(&Event::Changed(&Change {
                name: name.clone(),
                new: slot.value(&self.shared.codec),
                listed: true,
                recorded: false,
                before: None,
                after: Some(slot.seen),
                codec: &self.shared.codec,
            }));
        }
        if self.is_ready() {
            hear(&Event::Listed);
        }
        if self.shared.is_interrupted.load(Ordering::Relaxed) {
            hear(&Event::Interrupted);
        }
        let id = self.shared.subscribers_made.fetch_add(1, Ordering::Relaxed);
        subscribers.insert(id, Box::new(hear));
        Subscription {
            id,
            of: Arc::downgrade(&self.shared) as Weak<dyn Subscribed>,
        }
    }

    /// Takes in an own write at once, so that the next reconcile sees it. Returns whether it was news.
    pub fn record(&self, mut object: V) -> Result<bool, Error>
    where
        V: Resource,
    {
        object.meta_mut().managed_fields = None;
        let (name, seen) = (Name::of(&object), Seen::of(&object));
        self.take(name, seen, object, None, Source::OwnWrite)
    }

    /// Forgets an object that is known to be gone before the watch says so.
    pub fn forget(&self, name: &Name) {
        self.remove(name, None, false);
    }

    /// Remembers an object, unless the same or a newer version of it is known. Returns whether it was news.
    fn take(
        &self,
        name: Name,
        seen: Seen,
        value: V,
        problem: Option<&str>,
        source: Source,
    ) -> Result<bool, Error> {
        let shared = &*self.shared;
        let entries = match (&shared.index_of, &problem) {
            (Some(index_of), None) => index_of(&value),
            _ => Vec::new(),
        };
        let (stored, value) = shared.codec.store(value)?;
        let subscribers = self.subscribers();
        let (before, after) = {
            let mut objects = self.write();
            let known = objects.slots.get(&name).map(|slot| slot.seen);
            if known.is_some_and(|known| known.is_as_new_as(&seen)) {
                return Ok(false);
            }
            let after = known.map_or(seen, |known| seen.after(&known));
            objects.index.set(&name, &entries);
            let slot = Slot {
                seen: after,
                stored,
                problem: problem.map(Into::into),
            };
            (objects.slots.insert(name.clone(), slot), after)
        };
        if let Some(problem) = problem
            && before.as_ref().and_then(|slot| slot.problem.as_deref()) != Some(problem)
        {
            tracing::warn!(%name, %problem, "one of the {} does not parse", shared.what);
        }
        tell(
            &subscribers,
            &Event::Changed(&Change {
                name,
                new: problem.is_none().then_some(value),
                listed: source == Source::List,
                recorded: source == Source::OwnWrite,
                before,
                after: Some(after),
                codec: &shared.codec,
            }),
        );
        Ok(true)
    }

    /// Forgets an object. Of a deletion that was `seen`, an object that was made anew since is no part.
    fn remove(&self, name: &Name, seen: Option<&Seen>, listed: bool) {
        let subscribers = self.subscribers();
        let before = {
            let mut objects = self.write();
            let known = objects.slots.get(name).map(|slot| &slot.seen);
            if known
                .zip(seen)
                .is_some_and(|(known, seen)| !known.is_same_object(seen))
            {
                return;
            }
            objects.index.set(name, &[]);
            objects.slots.remove(name)
        };
        if before.is_some() {
            tell(
                &subscribers,
                &Event::Changed(&Change {
                    name: name.clone(),
                    new: None,
                    listed,
                    recorded: false,
                    before,
                    after: None,
                    codec: &self.shared.codec,
                }),
            );
        }
    }

    /// A list is complete.
    fn listed(&self) {
        let subscribers = self.subscribers();
        self.resumed();
        self.shared
            .ready
            .send_if_modified(|ready| !std::mem::replace(ready, true));
        tell(&subscribers, &Event::Listed);
    }

    /// The watch does not show changes for now.
    fn interrupted(&self) {
        let subscribers = self.subscribers();
        self.shared.is_interrupted.store(true, Ordering::Relaxed);
        tell(&subscribers, &Event::Interrupted);
    }

    /// The watch shows every change again.
    fn resumed(&self) {
        self.shared.is_interrupted.store(false, Ordering::Relaxed);
    }

    fn collect<'a>(&self, slots: impl Iterator<Item = (&'a Name, &'a Slot<V>)>) -> Vec<(Name, Arc<V>)>
    where
        V: 'a,
    {
        let values = slots.filter_map(|(name, slot)| Some((name.clone(), slot.value(&self.shared.codec)?)));
        values.collect()
    }

    fn subscribers(&self) -> MutexGuard<'_, BTreeMap<u64, Subscriber<V>>> {
        self.shared
            .subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<V>> {
        self.shared.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<V>> {
        self.shared
            .objects
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a subscription when it is dropped.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    id: u64,
    of: Weak<dyn Subscribed>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(of) = self.of.upgrade() {
            of.unsubscribe(self.id);
        }
    }
}

trait Subscribed: Send + Sync {
    fn unsubscribe(&self, id: u64);
}

impl<V: Send + Sync> Subscribed for Shared<V> {
    fn unsubscribe(&self, id: u64) {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
    }
}

/// The entry of a value in an index. Two values with one entry are as good as impossible, and cost a look in vain.
pub fn index_key(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn tell<V>(subscribers: &BTreeMap<u64, Subscriber<V>>, event: &Event<'_, V>) {
    for subscriber in subscribers.values() {
        subscriber(event);
    }
}

fn within<'a, V>(
    slots: &'a BTreeMap<Name, Slot<V>>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a Name, &'a Slot<V>)> {
    slots
        .range((Bound::Included(Name::new(namespace, "")), Bound::Unbounded))
        .take_while(move |(name, _)| *name.namespace == *namespace)
}
