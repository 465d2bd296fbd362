//! What a controller keeps between two events: a mirror of what a watch showed, and a queue of what is to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        wait::{Condition, await_condition},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use crate::{
    backoff::Backoff,
    metrics::Meter,
    tolerant::{Guarded, guarded},
};

/// `namespace/name`, or the name alone for objects without a namespace.
pub fn key_of<K: Resource>(object: &K) -> String {
    match object.meta().namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// The events of a watch that goes on for ever; failures are logged and tried again later, and what cannot be read
/// is gone.
pub fn events<K>(api: Api<Guarded<K>>, config: watcher::Config) -> BoxStream<'static, watcher::Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Default + Send + 'static,
{
    unceasing(guarded(api, config))
}

/// Like [`events`], of the metadata alone: the server sends no more.
pub fn metadata_events<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
) -> BoxStream<'static, watcher::Event<PartialObjectMeta<K>>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    unceasing(watcher(api, config))
}

fn unceasing<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
) -> BoxStream<'static, watcher::Event<K>>
where
    K: Resource<DynamicType = ()> + Send + 'static,
{
    events
        .modify(|object| {
            object.managed_fields_mut().clear();
        })
        .default_backoff()
        .filter_map(|event| async move {
            event
                .inspect_err(
                    |error| tracing::warn!(kind = %K::kind(&()), %error, "a watch failed, trying again"),
                )
                .ok()
        })
        .boxed()
}

/// Waits for the moment to try again: until a watch of this one object shows it as `wanted`, and then for the next of
/// the growing pauses, as a right counts only some moments after it was granted. Whoever may not watch has the pauses
/// alone.
pub async fn until<K>(api: &Api<K>, name: &str, wanted: impl Condition<K>, pauses: &mut Backoff)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    if let Err(error) = await_condition(api.clone(), name, wanted).await {
        tracing::debug!(%name, %error, "cannot watch it: waiting for a while instead");
    }
    tokio::time::sleep(pauses.next_delay()).await;
}

/// All objects that a watch showed, reduced to what a controller needs of them.
#[derive(Debug)]
pub struct Mirror<V> {
    objects: BTreeMap<String, V>,
    listed: Option<BTreeSet<String>>,
    ready: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listed: None,
            ready: false,
        }
    }
}

/// One object that came, changed or went.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<V> {
    /// Its key.
    pub key: String,
    /// What was known of it.
    pub old: Option<V>,
    /// Whether it is gone.
    pub gone: bool,
}

impl<V> Mirror<V> {
    /// Takes one event in and tells what changed.
    pub fn apply<K: Resource>(
        &mut self,
        event: watcher::Event<K>,
        reduce: impl Fn(K) -> V,
    ) -> Vec<Change<V>> {
        match event {
            watcher::Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let key = key_of(&object);
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                vec![self.insert(key, reduce(object))]
            }
            watcher::Event::InitDone => {
                self.ready = true;
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<_> = self
                    .objects
                    .keys()
                    .filter(|k| !listed.contains(*k))
                    .cloned()
                    .collect();
                gone.into_iter().map(|key| self.remove(key)).collect()
            }
            watcher::Event::Apply(object) => vec![self.insert(key_of(&object), reduce(object))],
            watcher::Event::Delete(object) => vec![self.remove(key_of(&object))],
        }
    }

    /// Whether the first list is complete.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The object with that key.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.objects.get(key)
    }

    /// All objects by key.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.objects.iter()
    }

    /// The objects in a namespace.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &V> {
        let from = format!("{namespace}/");
        // '0' is the character after '/'.
        let to = format!("{namespace}0");
        self.objects.range(from..to).map(|(_, v)| v)
    }

    fn insert(&mut self, key: String, value: V) -> Change<V> {
        let old = self.objects.insert(key.clone(), value);
        Change {
            key,
            old,
            gone: false,
        }
    }

    fn remove(&mut self, key: String) -> Change<V> {
        let old = self.objects.remove(&key);
        Change { key, old, gone: true }
    }
}

/// What is to do, each thing once; what failed comes back later.
#[derive(Debug)]
pub struct Queue<T> {
    due: BTreeSet<T>,
    later: BTreeMap<T, Instant>,
    failures: BTreeMap<T, Backoff>,
    /// When the things that were taken last were taken.
    taken: Instant,
    meter: Meter,
}

impl<T> Queue<T> {
    /// An empty queue, whose work is counted.
    pub fn new(meter: Meter) -> Self {
        Self {
            due: BTreeSet::new(),
            later: BTreeMap::new(),
            failures: BTreeMap::new(),
            taken: Instant::now(),
            meter,
        }
    }
}

impl<T: Ord + Clone> Queue<T> {
    /// Do it now.
    pub fn push(&mut self, item: T) {
        self.due.insert(item);
    }

    /// Do it after a while, unless it comes up earlier.
    pub fn push_after(&mut self, item: T, delay: Duration) {
        let at = Instant::now() + delay;
        let slot = self.later.entry(item).or_insert(at);
        *slot = at.min(*slot);
    }

    /// Takes what is due.
    pub fn take_due(&mut self) -> Vec<T> {
        let now = Instant::now();
        let woken: Vec<_> = self
            .later
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(item, _)| item.clone())
            .collect();
        self.due.extend(woken);
        let due = std::mem::take(&mut self.due);
        for item in &due {
            self.later.remove(item);
        }
        self.taken = now;
        due.into_iter().collect()
    }

    /// When something is due that was put off; a minute from now if nothing is.
    pub fn wakes_at(&self) -> Instant {
        let idle = Instant::now() + Duration::from_mins(1);
        self.later.values().min().copied().unwrap_or(idle)
    }

    /// It worked: forget earlier failures.
    pub fn done(&mut self, item: &T) {
        self.meter.looked_since(self.taken, true);
        self.failures.remove(item);
    }

    /// It failed: it comes back later, later each time.
    pub fn failed(&mut self, item: T) {
        self.meter.looked_since(self.taken, false);
        let backoff = self
            .failures
            .entry(item.clone())
            .or_insert_with(|| Backoff::new(Duration::from_millis(200), Duration::from_mins(1)));
        let delay = backoff.next_delay();
        self.push_after(item, delay);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::health::Health;

    fn object(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.namespace = Some("ns".into());
        object
    }

    #[test]
    fn a_new_list_removes_what_is_gone() {
        let mut mirror = Mirror::default();
        mirror.apply(watcher::Event::<ConfigMap>::Init, |_| ());
        mirror.apply(watcher::Event::InitApply(object("a")), |_| ());
        mirror.apply(watcher::Event::InitApply(object("b")), |_| ());
        assert!(!mirror.is_ready());
        mirror.apply(watcher::Event::<ConfigMap>::InitDone, |_| ());
        assert!(mirror.is_ready());
        mirror.apply(watcher::Event::<ConfigMap>::Init, |_| ());
        mirror.apply(watcher::Event::InitApply(object("b")), |_| ());
        let changes = mirror.apply(watcher::Event::<ConfigMap>::InitDone, |_| ());
        assert_eq!(
            changes,
            [Change {
                key: "ns/a".into(),
                old: Some(()),
                gone: true
            }]
        );
        assert_eq!(mirror.in_namespace("ns").count(), 1);
        assert_eq!(mirror.in_namespace("n").count(), 0);
    }

    #[test]
    fn what_failed_comes_back_and_what_is_due_comes_once() {
        let mut queue = Queue::new(Health::default().meter("test"));
        queue.push("a");
        queue.push("a");
        assert_eq!(queue.take_due(), ["a"]);
        queue.failed("a");
        assert_eq!(queue.take_due(), Vec::<&str>::new());
        assert!(queue.wakes_at() < Instant::now() + Duration::from_secs(1));
        queue.push("a");
        assert_eq!(queue.take_due(), ["a"]);
        assert!(queue.wakes_at() > Instant::now() + Duration::from_secs(1));
    }
}
