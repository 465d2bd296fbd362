//! One watch on the metadata of a part of a kind. It holds no cache: an event is compared and dropped.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
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
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use writ_controller::{Name, backoff::Backoff, error::status_code, queue::Queue};

use super::{
    index::{DriftIndex, name_of},
    watch_scope::WatchScope,
};
use crate::work::model::Key;

/// How soon a watch that was refused is tried again: the server's authorizer may lag behind a new right.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// How long a watch has to last after its list to count as established: a server that allows `list` and not `watch`
/// refuses only then.
const ESTABLISHED_AFTER: Duration = Duration::from_secs(1);

/// The longest pause between attempts at a list that fails.
const LAST_DELAY: Duration = Duration::from_secs(30);

/// What a stream reports of itself.
#[derive(Default)]
pub struct StreamState {
    /// Whether its last attempt failed.
    pub is_failing: AtomicBool,
    /// Whether the agent may not watch this.
    pub is_refused: AtomicBool,
    /// Whether it is refused because the server offers no watch on the kind.
    pub is_unwatchable: AtomicBool,
    /// The rights of the agent have changed: it is tried again.
    pub retry: Notify,
}

/// The set of watches that a stream belongs to.
pub trait StreamOwner: Send + Sync {
    /// A stream was refused, or is allowed again.
    fn access_changed(self: Arc<Self>, resource: &ApiResource, scope: &WatchScope);

    /// It is time to look at the objects of a kind that no stream shows.
    fn poll_unwatched(&self, resource: &ApiResource);
}

/// How a watch ended.
struct End {
    /// Whether it was established.
    was_established: bool,
    /// Whether it was refused.
    is_refused: bool,
}

/// A part of a kind that is watched.
pub struct WatchStream {
    /// A client of the managed cluster.
    pub client: Client,
    /// The kind.
    pub resource: ApiResource,
    /// Which part of it.
    pub scope: WatchScope,
    /// Where events are compared.
    pub index: DriftIndex,
    /// Where works are queued.
    pub queue: Queue<Key>,
    /// What it reports of itself.
    pub state: Arc<StreamState>,
    /// How often unwatched objects are polled, and the longest pause between attempts at a watch that is refused.
    pub poll_every: Duration,
    /// Whether this stream covers all that matters of the kind. Such a stream polls what no stream shows.
    pub is_wide: bool,
    /// The set of watches that it belongs to.
    pub owner: Weak<dyn StreamOwner>,
}

impl WatchStream {
    /// Watches until it is dropped.
    pub async fn run(self) {
        let mut refused_pauses = Backoff::new(FIRST_DELAY, self.poll_every);
        let mut failed_pauses = Backoff::new(FIRST_DELAY, LAST_DELAY);
        let mut poll_at = Instant::now() + self.poll_every;
        let mut was_refused = false;
        loop {
            let End {
                was_established,
                is_refused,
            } = self.watch_until_it_ends().await;
            if was_established {
                refused_pauses.reset();
                failed_pauses.reset();
            }
            if is_refused {
                // The first refusal may be one of an authorizer that lags.
                if was_refused && !was_established {
                    self.set_refused(true);
                }
                was_refused = true;
                self.pause(&mut refused_pauses, &mut poll_at).await;
            } else {
                self.pause(&mut failed_pauses, &mut poll_at).await;
            }
        }
    }

    /// Waits until it is time to try again, soon if rights change. Meanwhile unwatched objects are polled.
    async fn pause(&self, pauses: &mut Backoff, poll_at: &mut Instant) {
        let mut until = Instant::now() + pauses.next_delay();
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.state.retry.notified() => {
                    pauses.reset();
                    until = until.min(Instant::now() + pauses.next_delay());
                }
                () = sleep_until(*poll_at), if self.is_wide => {
                    *poll_at = Instant::now() + self.poll_every;
                    if let Some(owner) = self.owner.upgrade() {
                        owner.poll_unwatched(&self.resource);
                    }
                }
            }
        }
    }

    fn set_refused(&self, is_refused: bool) {
        if self.state.is_refused.swap(is_refused, Ordering::Relaxed) == is_refused {
            return;
        }
        let (kind, scope) = (&self.resource.kind, &self.scope);
        if is_refused {
            tracing::warn!(kind, ?scope, "the agent may not list and watch objects of works");
        } else {
            tracing::info!(
                kind,
                ?scope,
                "the agent may list and watch objects of works again"
            );
        }
        if let Some(owner) = self.owner.upgrade() {
            owner.access_changed(&self.resource, &self.scope);
        }
    }

    /// Watches as long as the agent may and the server answers.
    async fn watch_until_it_ends(&self) -> End {
        let (api, config) = request(self.client.clone(), &self.resource, &self.scope);
        let events = watcher(api, config).default_backoff();
        pin_mut!(events);
        let mut listed: BTreeSet<Name> = BTreeSet::new();
        let mut was_established = false;
        let mut established_at: Option<Instant> = None;
        let mut is_listing = true;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = sleep_until(established_at.unwrap_or_else(Instant::now)), if established_at.is_some() => {
                    established_at = None;
                    was_established = true;
                    self.set_refused(false);
                    continue;
                }
            };
            let ended = |is_refused| End {
                was_established,
                is_refused,
            };
            let Some(event) = event else {
                return ended(false);
            };
            self.state.is_failing.store(event.is_err(), Ordering::Relaxed);
            match event {
                Ok(event) => {
                    match &event {
                        watcher::Event::Init => is_listing = true,
                        watcher::Event::InitDone => {
                            is_listing = false;
                            established_at = Some(Instant::now() + ESTABLISHED_AFTER);
                        }
                        _ => {}
                    }
                    self.take(event, &mut listed);
                }
                Err(error) if is_forbidden(&error) || cannot_be_watched(&error) => {
                    tracing::debug!(kind = self.resource.kind, scope = ?self.scope, %error, "watch refused");
                    let is_unwatchable = cannot_be_watched(&error);
                    self.state.is_unwatchable.store(is_unwatchable, Ordering::Relaxed);
                    return ended(true);
                }
                // A watch resumes where it was. A list starts over, and the watcher's own backoff counts each of its
                // attempts as progress.
                Err(error) if is_listing => {
                    tracing::warn!(kind = self.resource.kind, %error, "list failed, will try again");
                    return ended(false);
                }
                Err(error) => {
                    tracing::warn!(kind = self.resource.kind, %error, "watch interrupted, will try again");
                    established_at = None;
                }
            }
        }
    }

    /// Compares an event with the index, and queues the works that it matters to.
    fn take(&self, event: watcher::Event<Meta>, listed: &mut BTreeSet<Name>) {
        let (resource, index) = (&self.resource, &self.index);
        let wake = match event {
            watcher::Event::Init => {
                listed.clear();
                return;
            }
            watcher::Event::InitApply(object) => {
                let name = name_of(&object.metadata);
                if index.is_known(resource, &name) {
                    listed.insert(name);
                }
                index.object_changed(resource, &object.metadata)
            }
            watcher::Event::InitDone => {
                let wake = index.listing_completed(resource, &self.scope, listed);
                listed.clear();
                wake
            }
            watcher::Event::Apply(object) => index.object_changed(resource, &object.metadata),
            watcher::Event::Delete(object) => index.object_deleted(resource, &object.metadata),
        };
        for wake in wake {
            if wake.is_awaited {
                self.queue.input_changed(&wake.key);
            }
            if wake.delay.is_zero() {
                self.queue.add(wake.key);
            } else {
                self.queue.add_after(wake.key, wake.delay);
            }
        }
    }
}

type Meta = PartialObjectMeta<DynamicObject>;

/// The request that shows a part of a kind.
fn request(client: Client, resource: &ApiResource, scope: &WatchScope) -> (Api<Meta>, watcher::Config) {
    let config = watcher::Config::default();
    match scope {
        WatchScope::All => (Api::all_with(client, resource), config),
        WatchScope::Namespace(namespace) => (Api::namespaced_with(client, namespace, resource), config),
        WatchScope::Object(Name { namespace, name }) => {
            let config = config.fields(&format!("metadata.name={name}"));
            if namespace.is_empty() {
                (Api::all_with(client, resource), config)
            } else {
                (Api::namespaced_with(client, namespace, resource), config)
            }
        }
    }
}

/// Whether the server says that the agent lacks the right.
fn is_forbidden(error: &watcher::Error) -> bool {
    code(error) == Some(403)
}

/// Whether the server offers no list or no watch on this kind.
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
