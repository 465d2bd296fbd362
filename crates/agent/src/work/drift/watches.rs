//! Metadata-only watches on the kinds that were applied. They hold no cache: an event is compared and dropped.
//!
//! There is one watch per kind, as wide as it must be. While the agent may not watch that much, there is one for each
//! namespace in which works have objects of the kind. What it may not watch there either is looked at from time to
//! time, and the works say so. A change of RBAC lets it try again.

pub mod blind;
mod part;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{Client, core::ApiResource};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use writ_controller::queue::Queue;

use self::{
    blind::{Blind, Why},
    part::Part,
};
use super::{
    Key,
    mapper::Kind,
    objects::{Name, Objects, Scope},
};

/// How long a watch that nobody needs is kept: what was just taken away often comes back, and a watch that starts
/// costs a connection and a list.
const LINGERS: Duration = Duration::from_mins(1);

/// In how many namespaces a kind is watched one by one: each watch is a request that stays open.
pub const MAX_NAMESPACES: usize = 100;

/// How often what may not be watched is looked at, unless the agent is told otherwise. OCM's agents look at everything
/// about as often.
pub const LOOKS: Duration = Duration::from_mins(5);

/// And at most so often.
pub const MIN_LOOKS: Duration = Duration::from_secs(1);

/// What a watch says of itself.
#[derive(Default)]
struct State {
    /// Whether its last attempt failed.
    fails: AtomicBool,
    /// Whether the agent has not the right to watch this.
    refused: AtomicBool,
    /// Whether that is because nobody can.
    unwatchable: AtomicBool,
    /// Rights have changed.
    again: Notify,
}

struct Running {
    scope: Scope,
    state: Arc<State>,
    _task: AbortOnDropHandle<()>,
}

impl Running {
    fn is_refused(&self) -> bool {
        self.state.refused.load(Ordering::Relaxed)
    }
}

/// The watches on one kind.
struct OfKind {
    /// The one that shows everything that matters.
    wide: Running,
    /// What stands in for it while it is refused, by namespace.
    narrow: HashMap<Arc<str>, Running>,
    /// Ends them in a while, if nobody needs them.
    ending: Option<AbortOnDropHandle<()>>,
}

impl OfKind {
    /// Why changes of an object are not seen, if so.
    fn blind(&self, name: &Name) -> Option<Why> {
        if !self.wide.is_refused() {
            return None;
        }
        if self.wide.state.unwatchable.load(Ordering::Relaxed) {
            return Some(Why::Unwatchable);
        }
        match self.narrow.get(&name.0) {
            Some(narrow) => (narrow.is_refused() || !narrow.scope.contains(name)).then_some(Why::Refused),
            None if self.narrow.len() >= MAX_NAMESPACES => Some(Why::TooMany),
            None => Some(Why::Refused),
        }
    }
}

/// Which parts of a kind, by their namespaces, are watched while the watch on all of `wide` is refused. Those that run
/// go on.
fn stand_ins(
    wide: &Scope,
    parts: BTreeMap<Arc<str>, Scope>,
    runs: impl Fn(&str) -> bool,
) -> BTreeMap<Arc<str>, Scope> {
    let narrower = parts.into_iter().filter(|(_, part)| part != wide);
    let (old, new): (Vec<_>, Vec<_>) = narrower.partition(|(namespace, _)| runs(namespace));
    old.into_iter().chain(new).take(MAX_NAMESPACES).collect()
}

/// All watches.
pub struct Watches(Arc<Shared>);

struct Shared {
    client: Client,
    objects: Objects,
    queue: Queue<Key>,
    /// How often what may not be watched is looked at.
    looks: Duration,
    /// The kinds whose changes tell that the agent's rights may have changed.
    rbac: Vec<Arc<Kind>>,
    running: Mutex<HashMap<ApiResource, OfKind>>,
}

impl Watches {
    /// No watch yet.
    pub fn new(
        client: Client,
        objects: Objects,
        queue: Queue<Key>,
        looks: Duration,
        rbac: Vec<Arc<Kind>>,
    ) -> Self {
        Self(Arc::new(Shared {
            client,
            objects,
            queue,
            looks,
            rbac,
            running: Mutex::default(),
        }))
    }

    /// Starts, widens and stops watches as the index needs them. A watch that is wider than needed stays.
    pub fn refresh(&self) {
        self.0.refresh();
    }

    /// Rights have changed: what was refused may be allowed now.
    pub fn try_again(&self) {
        for of_kind in self.0.running().values() {
            for running in std::iter::once(&of_kind.wide).chain(of_kind.narrow.values()) {
                if running.is_refused() {
                    running.state.again.notify_one();
                }
            }
        }
    }

    /// Of which of these objects changes are not seen.
    pub fn blind<'a>(&self, objects: impl Iterator<Item = (&'a ApiResource, Name)>) -> BTreeSet<Blind> {
        let running = self.0.running();
        if !running.values().any(|of_kind| of_kind.wide.is_refused()) {
            return BTreeSet::new();
        }
        objects
            .filter_map(|(resource, name)| {
                let why = running.get(resource)?.blind(&name)?;
                Some(Blind::new(resource, &name, why))
            })
            .collect()
    }

    /// How often what may not be watched is looked at.
    pub fn looks(&self) -> Duration {
        self.0.looks
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, HashMap<ApiResource, OfKind>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(self: &Arc<Self>) {
        let mut running = self.running();
        // Asked for under the lock: two that refresh at once must not undo each other.
        let narrowed = running
            .iter()
            .any(|(resource, of_kind)| of_kind.wide.is_refused() && self.objects.has(resource));
        let rights: &[Arc<Kind>] = if narrowed { &self.rbac } else { &[] };
        self.objects.interest(&Key::Rights, &[], rights);
        let wanted: HashMap<ApiResource, Scope> = self.objects.scopes().into_iter().collect();
        running.retain(|resource, of_kind| {
            if wanted.contains_key(resource) {
                // One that waits to try again, because its kind was gone, is started anew.
                let ending = of_kind.ending.take();
                return ending.is_none() || !of_kind.wide.state.fails.load(Ordering::Relaxed);
            }
            of_kind.ending.get_or_insert_with(|| {
                let end = end(Arc::downgrade(self), resource.clone());
                AbortOnDropHandle::new(tokio::spawn(end))
            });
            true
        });
        for (resource, scope) in wanted {
            let old = running.get(&resource);
            if !old.is_some_and(|of_kind| of_kind.wide.scope.covers(&scope)) {
                let refused = old.is_some_and(|of_kind| of_kind.wide.is_refused());
                let new = OfKind {
                    wide: self.start(&resource, scope, refused, true),
                    narrow: HashMap::new(),
                    ending: None,
                };
                running.insert(resource.clone(), new);
            }
            if let Some(of_kind) = running.get_mut(&resource) {
                self.stand_in(&resource, of_kind);
            }
        }
    }

    /// Starts and ends what stands in for a watch that is refused.
    fn stand_in(self: &Arc<Self>, resource: &ApiResource, of_kind: &mut OfKind) {
        if !of_kind.wide.is_refused() {
            of_kind.narrow.clear();
            return;
        }
        let parts = self.objects.parts(resource);
        let narrow = &mut of_kind.narrow;
        let wanted = stand_ins(&of_kind.wide.scope, parts, |namespace| {
            narrow.contains_key(namespace)
        });
        narrow.retain(|namespace, _| wanted.contains_key(namespace));
        for (namespace, scope) in wanted {
            let old = narrow.get(&namespace);
            if old.is_some_and(|running| running.scope.covers(&scope)) {
                continue;
            }
            let refused = old.is_some_and(Running::is_refused);
            // One that had no place among those that are watched says so no longer.
            for key in self.objects.holders(resource, |name| name.0 == namespace) {
                self.queue.add(key);
            }
            narrow.insert(namespace, self.start(resource, scope, refused, false));
        }
    }

    fn start(self: &Arc<Self>, resource: &ApiResource, scope: Scope, refused: bool, wide: bool) -> Running {
        let state = Arc::new(State {
            refused: AtomicBool::new(refused),
            ..State::default()
        });
        let part = Part {
            client: self.client.clone(),
            resource: resource.clone(),
            scope: scope.clone(),
            objects: self.objects.clone(),
            queue: self.queue.clone(),
            state: state.clone(),
            looks: self.looks,
            wide,
            all: Arc::downgrade(self),
        };
        Running {
            scope,
            state,
            _task: AbortOnDropHandle::new(tokio::spawn(part.watch())),
        }
    }

    /// A watch was refused, or is allowed again.
    fn changed(self: &Arc<Self>, resource: &ApiResource, scope: &Scope) {
        self.refresh();
        for key in self.objects.holders(resource, |name| scope.contains(name)) {
            self.queue.add(key);
        }
    }

    /// Looks at the objects of a kind whose changes are not seen.
    fn look(&self, resource: &ApiResource) {
        let running = self.running();
        let Some(of_kind) = running.get(resource) else {
            return;
        };
        let doubted = self.objects.doubt(resource, |name| of_kind.blind(name).is_some());
        drop(running);
        for key in doubted {
            self.queue.add(key);
        }
    }
}

/// Ends the watches on a kind in a while.
async fn end(all: Weak<Shared>, resource: ApiResource) {
    tokio::time::sleep(LINGERS).await;
    if let Some(all) = all.upgrade() {
        // Whoever needed them meanwhile has stopped this.
        all.running().remove(&resource);
    }
}
