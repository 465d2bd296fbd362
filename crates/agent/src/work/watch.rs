//! Metadata-only watches on the kinds that were applied. They hold no cache: an event is compared and dropped.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
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

struct Running {
    scope: Scope,
    _task: AbortOnDropHandle<()>,
}

/// One watch per kind, as wide as it must be and no wider.
pub struct Watches {
    client: Client,
    objects: Objects,
    queue: Queue<Key>,
    running: Mutex<HashMap<ApiResource, Running>>,
}

impl Watches {
    /// No watch yet.
    pub fn new(client: Client, objects: Objects, queue: Queue<Key>) -> Self {
        Self {
            client,
            objects,
            queue,
            running: Mutex::default(),
        }
    }

    /// Starts, widens and stops watches as the index needs them. A watch that is wider than needed stays.
    pub fn refresh(&self) {
        let wanted: HashMap<ApiResource, Scope> = self.objects.scopes().into_iter().collect();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|resource, _| wanted.contains_key(resource));
        for (resource, scope) in wanted {
            if running
                .get(&resource)
                .is_some_and(|watch| watch.scope.covers(&scope))
            {
                continue;
            }
            let task = tokio::spawn(watch(
                self.client.clone(),
                resource.clone(),
                scope.clone(),
                self.objects.clone(),
                self.queue.clone(),
            ));
            running.insert(
                resource,
                Running {
                    scope,
                    _task: AbortOnDropHandle::new(task),
                },
            );
        }
    }
}

async fn watch(client: Client, resource: ApiResource, scope: Scope, objects: Objects, queue: Queue<Key>) {
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
            if delay.is_zero() {
                queue.add(key);
            } else {
                queue.add_after(key, delay);
            }
        }
    }
}
