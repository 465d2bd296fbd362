//! Metadata-only watches on the kinds that were applied. They hold no cache: an event is compared and dropped.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use tokio_util::task::AbortOnDropHandle;
use writ_runtime::queue::Queue;

use super::{
    Key,
    objects::{Objects, Scope, name_of},
};

/// How long a watch that nobody needs is kept: what was just taken away often comes back, and a watch that starts
/// costs a connection and a list.
const LINGERS: Duration = Duration::from_mins(1);

struct Running {
    scope: Scope,
    _task: AbortOnDropHandle<()>,
    /// Whether its last attempt succeeded.
    works: Arc<AtomicBool>,
    /// Ends the watch in a while, if nobody needs it.
    ending: Option<AbortOnDropHandle<()>>,
}

type All = Arc<Mutex<HashMap<ApiResource, Running>>>;

/// One watch per kind, as wide as it must be and no wider.
pub struct Watches {
    client: Client,
    objects: Objects,
    queue: Queue<Key>,
    running: All,
}

impl Watches {
    /// No watch yet.
    pub fn new(client: Client, objects: Objects, queue: Queue<Key>) -> Self {
        Self {
            client,
            objects,
            queue,
            running: All::default(),
        }
    }

    /// Starts, widens and stops watches as the index needs them. A watch that is wider than needed stays.
    pub fn refresh(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked for under the lock: two that refresh at once must not undo each other.
        let wanted: HashMap<ApiResource, Scope> = self.objects.scopes().into_iter().collect();
        running.retain(|resource, watch| {
            if wanted.contains_key(resource) {
                // One that waits to try again, because its kind was gone, is started anew.
                let ending = watch.ending.take();
                return ending.is_none() || watch.works.load(Ordering::Relaxed);
            }
            watch.ending.get_or_insert_with(|| {
                let end = end(Arc::downgrade(&self.running), resource.clone());
                AbortOnDropHandle::new(tokio::spawn(end))
            });
            true
        });
        for (resource, scope) in wanted {
            if running
                .get(&resource)
                .is_some_and(|watch| watch.scope.covers(&scope))
            {
                continue;
            }
            let works = Arc::new(AtomicBool::new(true));
            let task = tokio::spawn(watch(
                self.client.clone(),
                resource.clone(),
                scope.clone(),
                self.objects.clone(),
                self.queue.clone(),
                works.clone(),
            ));
            running.insert(
                resource,
                Running {
                    scope,
                    _task: AbortOnDropHandle::new(task),
                    works,
                    ending: None,
                },
            );
        }
    }
}

/// Ends a watch in a while.
async fn end(running: Weak<Mutex<HashMap<ApiResource, Running>>>, resource: ApiResource) {
    tokio::time::sleep(LINGERS).await;
    if let Some(running) = running.upgrade() {
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever needed it meanwhile has stopped this.
        running.remove(&resource);
    }
}

async fn watch(
    client: Client,
    resource: ApiResource,
    scope: Scope,
    objects: Objects,
    queue: Queue<Key>,
    works: Arc<AtomicBool>,
) {
    type Meta = PartialObjectMeta<DynamicObject>;
    let config = watcher::Config::default();
    let (api, config): (Api<Meta>, _) = match &scope {
        Scope::All => (Api::all_with(client, &resource), config),
        Scope::Namespace(namespace) => (Api::namespaced_with(client, namespace, &resource), config),
        Scope::Object((namespace, name)) => {
            let config = config.fields(&format!("metadata.name={name}"));
            if namespace.is_empty() {
                (Api::all_with(client, &resource), config)
            } else {
                (Api::namespaced_with(client, namespace, &resource), config)
            }
        }
    };
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        works.store(event.is_ok(), Ordering::Relaxed);
        let wake = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                let name = name_of(&object.metadata);
                if objects.knows(&resource, &name) {
                    listed.insert(name);
                }
                objects.seen(&resource, &object.metadata)
            }
            Ok(watcher::Event::InitDone) => {
                let wake = objects.listed(&resource, &scope, &listed);
                listed.clear();
                wake
            }
            Ok(watcher::Event::Apply(object)) => objects.seen(&resource, &object.metadata),
            Ok(watcher::Event::Delete(object)) => objects.deleted(&resource, &object.metadata),
            Err(error) => {
                tracing::warn!(kind = resource.kind, %error, "watch interrupted, will try again");
                continue;
            }
        };
        for (key, delay) in wake {
            if objects.awaits(&key, &resource) {
                // What it lacked may have come: if it is not usable at once, it will be soon.
                queue.forgive(&key);
            }
            if delay.is_zero() {
                queue.add(key);
            } else {
                queue.add_after(key, delay);
            }
        }
    }
}
