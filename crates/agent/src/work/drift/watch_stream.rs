//! One watch.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, sleep_until};
use writ_controller::{backoff::Backoff, error::status_code, queue::Queue};

use super::{Shared, State};
use crate::work::{
    Key,
    objects::{Objects, Scope, name_of},
};

/// How soon a watch that was refused is tried again: the server may not have heard of a new right yet.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// How long a watch has to last after its list to count as one: who may list and not watch is told only then.
const SETTLED: Duration = Duration::from_secs(1);

/// How seldom a list that fails is tried again.
const FAILING: Duration = Duration::from_secs(30);

/// How a watch ended.
struct End {
    /// Whether it was one.
    saw: bool,
    /// Whether it was refused, or did not come about.
    refused: bool,
}

/// A part of a kind that is watched.
pub(super) struct Part {
    pub client: Client,
    pub resource: ApiResource,
    pub scope: Scope,
    pub objects: Objects,
    pub queue: Queue<Key>,
    pub state: Arc<State>,
    /// How often what is not seen is looked at, and how seldom a watch that is refused is tried again.
    pub looks: Duration,
    /// Whether this shows all that matters of the kind. It is the one who looks at what nobody sees.
    pub wide: bool,
    pub all: Weak<Shared>,
}

impl Part {
    /// Watches for ever.
    pub async fn watch(self) {
        let mut backoff = Backoff::new(FIRST_DELAY, self.looks);
        let mut failing = Backoff::new(FIRST_DELAY, FAILING);
        let mut look_at = Instant::now() + self.looks;
        let mut before = false;
        loop {
            let End { saw, refused } = self.until_it_ends().await;
            if saw {
                backoff.reset();
                failing.reset();
            }
            if refused {
                if before && !saw {
                    // Not by a server that lags: this is how it is.
                    self.set_refused(true);
                }
                before = true;
                self.pause(&mut backoff, &mut look_at).await;
            } else {
                self.pause(&mut failing, &mut look_at).await;
            }
        }
    }

    /// Waits until it is time to try again, soon if rights change. Meanwhile what is not seen is looked at.
    async fn pause(&self, backoff: &mut Backoff, look_at: &mut Instant) {
        let mut until = Instant::now() + backoff.next_delay();
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.state.again.notified() => {
                    backoff.reset();
                    until = until.min(Instant::now() + backoff.next_delay());
                }
                () = sleep_until(*look_at), if self.wide => {
                    *look_at = Instant::now() + self.looks;
                    if let Some(all) = self.all.upgrade() {
                        all.look(&self.resource);
                    }
                }
            }
        }
    }

    fn set_refused(&self, refused: bool) {
        if self.state.refused.swap(refused, Ordering::Relaxed) == refused {
            return;
        }
        let (kind, scope) = (&self.resource.kind, &self.scope);
        if refused {
            tracing::warn!(kind, ?scope, "the agent cannot list and watch this");
        } else {
            tracing::info!(kind, ?scope, "the agent can list and watch this again");
        }
        if let Some(all) = self.all.upgrade() {
            all.changed(&self.resource, &self.scope);
        }
    }

    /// Watches as long as the agent may and the server answers.
    async fn until_it_ends(&self) -> End {
        let (resource, scope, objects) = (&self.resource, &self.scope, &self.objects);
        let (api, config) = request(self.client.clone(), resource, scope);
        let events = watcher(api, config).default_backoff();
        pin_mut!(events);
        let mut listed = BTreeSet::new();
        let mut saw = false;
        let mut settled: Option<Instant> = None;
        let mut listing = true;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    settled = None;
                    saw = true;
                    self.set_refused(false);
                    continue;
                }
            };
            let Some(event) = event else {
                return End { saw, refused: false };
            };
            self.state.fails.store(event.is_err(), Ordering::Relaxed);
            let wake = match event {
                Ok(watcher::Event::Init) => {
                    listing = true;
                    listed.clear();
                    continue;
                }
                Ok(watcher::Event::InitApply(object)) => {
                    let name = name_of(&object.metadata);
                    if objects.knows(resource, &name) {
                        listed.insert(name);
                    }
                    objects.seen(resource, &object.metadata)
                }
                Ok(watcher::Event::InitDone) => {
                    listing = false;
                    settled = Some(Instant::now() + SETTLED);
                    let wake = objects.listed(resource, scope, &listed);
                    listed.clear();
                    wake
                }
                Ok(watcher::Event::Apply(object)) => objects.seen(resource, &object.metadata),
                Ok(watcher::Event::Delete(object)) => objects.deleted(resource, &object.metadata),
                Err(error) if is_refused(&error) || cannot_be_watched(&error) => {
                    tracing::debug!(kind = resource.kind, ?scope, %error, "watch refused");
                    let unwatchable = cannot_be_watched(&error);
                    self.state.unwatchable.store(unwatchable, Ordering::Relaxed);
                    return End { saw, refused: true };
                }
                // A watch goes on where it was; a list begins anew, and each attempt looks like progress.
                Err(error) if listing => {
                    tracing::warn!(kind = resource.kind, %error, "list failed, will try again");
                    return End { saw, refused: false };
                }
                Err(error) => {
                    tracing::warn!(kind = resource.kind, %error, "watch interrupted, will try again");
                    settled = None;
                    continue;
                }
            };
            for (key, delay) in wake {
                if objects.awaits(&key, resource) {
                    // What it lacked may have come: if it is not usable at once, it will be soon.
                    self.queue.forgive(&key);
                }
                if delay.is_zero() {
                    self.queue.add(key);
                } else {
                    self.queue.add_after(key, delay);
                }
            }
        }
    }
}

type Meta = PartialObjectMeta<DynamicObject>;

/// What is asked to see a part of a kind.
fn request(client: Client, resource: &ApiResource, scope: &Scope) -> (Api<Meta>, watcher::Config) {
    let config = watcher::Config::default();
    match scope {
        Scope::All => (Api::all_with(client, resource), config),
        Scope::Namespace(namespace) => (Api::namespaced_with(client, namespace, resource), config),
        Scope::Object((namespace, name)) => {
            let config = config.fields(&format!("metadata.name={name}"));
            if namespace.is_empty() {
                (Api::all_with(client, resource), config)
            } else {
                (Api::namespaced_with(client, namespace, resource), config)
            }
        }
    }
}

/// Whether the server says that the agent has not the right.
fn is_refused(error: &watcher::Error) -> bool {
    code(error) == Some(403)
}

/// Whether objects of this kind are nothing that can be watched, or listed, whoever asks.
fn cannot_be_watched(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::NoResourceVersion) || code(error) == Some(405)
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => status_code(error),
        watcher::Error::WatchError(status) => Some(status.code),
        watcher::Error::NoResourceVersion => None,
    }
}
