//! Which watches run on the kinds of which works have objects.
//!
//! One watch per kind, as wide as needed. While the agent may not watch that much, one for each namespace in which works
//! have objects of the kind. Objects that it may not watch there either are polled, and their works report that. A
//! change of RBAC lets every refused watch try again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use kube::{Client, core::ApiResource};
use tokio_util::task::AbortOnDropHandle;
use writ_controller::{Name, ServedKind, queue::Queue};

use super::{
    index::DriftIndex,
    watch_scope::WatchScope,
    watch_stream::{StreamOwner, StreamState, WatchStream},
};
use crate::work::model::Key;

/// How long a watch that is no longer needed is kept: an object that was just removed often comes back, and a watch that
/// starts costs a connection and a list.
const LINGERS: Duration = Duration::from_mins(1);

/// In how many namespaces a kind is watched one by one: each watch is a request that stays open.
pub const MAX_NAMESPACES: usize = 100;

/// How often unwatched objects are polled, unless an option says otherwise. OCM's agents poll every object about as often.
pub const POLL: Duration = Duration::from_mins(5);

/// The shortest period of polling.
pub const MIN_POLL: Duration = Duration::from_secs(1);

/// Why changes of an object are not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnwatchedReason {
    /// The agent may not.
    Refused,
    /// It may not in all namespaces at once, and there are too many to watch them one by one.
    TooMany,
    /// The server offers no watch on this kind.
    Unwatchable,
}

/// Objects of one kind in one namespace that are not watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnwatchedObjects {
    /// Why not.
    pub reason: UnwatchedReason,
    /// The resource, with its group.
    pub resource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
}

impl UnwatchedObjects {
    /// The objects of a kind in the namespace of one of them.
    pub fn beside(resource: &ApiResource, name: &Name, reason: UnwatchedReason) -> Self {
        let dot = if resource.group.is_empty() { "" } else { "." };
        Self {
            reason,
            resource: format!("{}{dot}{}", resource.plural, resource.group),
            namespace: name.namespace.to_string(),
        }
    }
}

struct RunningWatch {
    scope: WatchScope,
    state: Arc<StreamState>,
    _task: AbortOnDropHandle<()>,
}

impl RunningWatch {
    fn is_refused(&self) -> bool {
        self.state.is_refused.load(Ordering::Relaxed)
    }
}

/// The watches on one kind.
struct KindWatches {
    /// The watch that shows everything that matters.
    wide: RunningWatch,
    /// Its substitutes while it is refused, by namespace.
    narrow: HashMap<Arc<str>, RunningWatch>,
    /// Ends them once they have not been needed for a while.
    ending: Option<AbortOnDropHandle<()>>,
}

impl KindWatches {
    /// Why an object is not watched, if it is not.
    fn unwatched_reason(&self, name: &Name) -> Option<UnwatchedReason> {
        if !self.wide.is_refused() {
            return None;
        }
        if self.wide.state.is_unwatchable.load(Ordering::Relaxed) {
            return Some(UnwatchedReason::Unwatchable);
        }
        match self.narrow.get(&name.namespace) {
            Some(narrow) => {
                let is_shown = !narrow.is_refused() && narrow.scope.contains(name);
                (!is_shown).then_some(UnwatchedReason::Refused)
            }
            None if self.narrow.len() >= MAX_NAMESPACES => Some(UnwatchedReason::TooMany),
            None => Some(UnwatchedReason::Refused),
        }
    }
}

/// Which namespaces of a kind are watched one by one while the watch on all of `wide` is refused. Watches that run are
/// kept.
pub(super) fn substitutes(
    wide: &WatchScope,
    namespaces: BTreeMap<Arc<str>, WatchScope>,
    is_running: impl Fn(&str) -> bool,
) -> BTreeMap<Arc<str>, WatchScope> {
    let narrower = namespaces.into_iter().filter(|(_, scope)| scope != wide);
    let (old, new): (Vec<_>, Vec<_>) = narrower.partition(|(namespace, _)| is_running(namespace));
    old.into_iter().chain(new).take(MAX_NAMESPACES).collect()
}

/// All watches.
pub struct DriftWatches(Arc<Shared>);

struct Shared {
    client: Client,
    index: DriftIndex,
    queue: Queue<Key>,
    /// How often unwatched objects are polled.
    poll_every: Duration,
    /// The kinds whose changes may change the agent's rights.
    rbac: Vec<Arc<ServedKind>>,
    running: Mutex<HashMap<ApiResource, KindWatches>>,
}

impl DriftWatches {
    /// No watch yet.
    pub fn new(
        client: Client,
        index: DriftIndex,
        queue: Queue<Key>,
        poll_every: Duration,
        rbac: Vec<Arc<ServedKind>>,
    ) -> Self {
        Self(Arc::new(Shared {
            client,
            index,
            queue,
            poll_every,
            rbac,
            running: Mutex::default(),
        }))
    }

    /// Starts, widens and stops watches as the index needs them. A watch that is wider than needed stays.
    pub fn refresh(&self) {
        self.0.refresh();
    }

    /// The rights of the agent may have changed: every refused watch is tried again.
    pub fn retry_refused(&self) {
        for watches in self.0.running().values() {
            for watch in std::iter::once(&watches.wide).chain(watches.narrow.values()) {
                if watch.is_refused() {
                    watch.state.retry.notify_one();
                }
            }
        }
    }

    /// Which of these objects are not watched.
    pub fn unwatched<'a>(
        &self,
        objects: impl Iterator<Item = (&'a ApiResource, Name)>,
    ) -> BTreeSet<UnwatchedObjects> {
        let running = self.0.running();
        if !running.values().any(|watches| watches.wide.is_refused()) {
            return BTreeSet::new();
        }
        objects
            .filter_map(|(resource, name)| {
                let reason = running.get(resource)?.unwatched_reason(&name)?;
                Some(UnwatchedObjects::beside(resource, &name, reason))
            })
            .collect()
    }

    /// How often unwatched objects are polled.
    pub fn poll_every(&self) -> Duration {
        self.0.poll_every
    }

    /// Whether only the wide watch of a kind runs.
    #[cfg(test)]
    pub(super) fn has_no_substitutes(&self, resource: &ApiResource) -> bool {
        self.0.running()[resource].narrow.is_empty()
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, HashMap<ApiResource, KindWatches>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(self: &Arc<Self>) {
        let mut running = self.running();
        // Read under the lock: two refreshes at once must not undo each other.
        let is_narrowed = running
            .iter()
            .any(|(resource, watches)| watches.wide.is_refused() && self.index.has_objects(resource));
        let rbac: &[Arc<ServedKind>] = if is_narrowed { &self.rbac } else { &[] };
        self.index.set_interest(&Key::AgentRights, &[], rbac);
        let wanted: HashMap<ApiResource, WatchScope> = self.index.scopes().into_iter().collect();
        running.retain(|resource, watches| {
            if wanted.contains_key(resource) {
                // A watch that waits to try again, because its kind was gone, is started again.
                let ending = watches.ending.take();
                return ending.is_none() || !watches.wide.state.is_failing.load(Ordering::Relaxed);
            }
            watches.ending.get_or_insert_with(|| {
                let end = end_later(Arc::downgrade(self), resource.clone());
                AbortOnDropHandle::new(tokio::spawn(end))
            });
            true
        });
        for (resource, scope) in wanted {
            let old = running.get(&resource);
            if !old.is_some_and(|watches| watches.wide.scope.covers(&scope)) {
                let was_refused = old.is_some_and(|watches| watches.wide.is_refused());
                let new = KindWatches {
                    wide: self.start(&resource, scope, was_refused, true),
                    narrow: HashMap::new(),
                    ending: None,
                };
                running.insert(resource.clone(), new);
            }
            if let Some(watches) = running.get_mut(&resource) {
                self.refresh_substitutes(&resource, watches);
            }
        }
    }

    /// Starts and ends the substitutes for a watch that is refused.
    fn refresh_substitutes(self: &Arc<Self>, resource: &ApiResource, watches: &mut KindWatches) {
        if !watches.wide.is_refused() {
            watches.narrow.clear();
            return;
        }
        let namespaces = self.index.scopes_by_namespace(resource);
        let narrow = &mut watches.narrow;
        let wanted = substitutes(&watches.wide.scope, namespaces, |namespace| {
            narrow.contains_key(namespace)
        });
        narrow.retain(|namespace, _| wanted.contains_key(namespace));
        for (namespace, scope) in wanted {
            let old = narrow.get(&namespace);
            if old.is_some_and(|watch| watch.scope.covers(&scope)) {
                continue;
            }
            let was_refused = old.is_some_and(RunningWatch::is_refused);
            // Works that reported that this namespace is not watched have to report that it is.
            for key in self.index.keys_for(resource, |name| name.namespace == namespace) {
                self.queue.add(key);
            }
            narrow.insert(namespace, self.start(resource, scope, was_refused, false));
        }
    }

    fn start(
        self: &Arc<Self>,
        resource: &ApiResource,
        scope: WatchScope,
        was_refused: bool,
        is_wide: bool,
    ) -> RunningWatch {
        let state = Arc::new(StreamState {
            is_refused: was_refused.into(),
            ..StreamState::default()
        });
        let owner: Arc<dyn StreamOwner> = self.clone();
        let stream = WatchStream {
            client: self.client.clone(),
            resource: resource.clone(),
            scope: scope.clone(),
            index: self.index.clone(),
            queue: self.queue.clone(),
            state: state.clone(),
            poll_every: self.poll_every,
            is_wide,
            owner: Arc::downgrade(&owner),
        };
        RunningWatch {
            scope,
            state,
            _task: AbortOnDropHandle::new(tokio::spawn(stream.run())),
        }
    }
}

impl StreamOwner for Shared {
    fn access_changed(self: Arc<Self>, resource: &ApiResource, scope: &WatchScope) {
        self.refresh();
        for key in self.index.keys_for(resource, |name| scope.contains(name)) {
            self.queue.add(key);
        }
    }

    fn poll_unwatched(&self, resource: &ApiResource) {
        let running = self.running();
        let Some(watches) = running.get(resource) else {
            return;
        };
        let keys = self
            .index
            .distrust(resource, |name| watches.unwatched_reason(name).is_some());
        drop(running);
        for key in keys {
            self.queue.add(key);
        }
    }
}

/// Ends the watches on a kind after a while. It is dropped if they are needed again.
async fn end_later(watches: Weak<Shared>, resource: ApiResource) {
    tokio::time::sleep(LINGERS).await;
    if let Some(watches) = watches.upgrade() {
        watches.running().remove(&resource);
    }
}
