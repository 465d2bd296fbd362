//! What is known of the cluster: the inventory, the state of each object, the watches and the namespaces. Pure.
//!
//! Events of watches come in by [`Observed::see`], results of writes by [`Observed::record`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use tokio::time::Instant;
use writ_controller::ObjectId;

use super::{
    desired::Desired,
    drift::{Scope, Seen, fights::Fights},
    error::{Cause, Failure},
    object::is_as_declared,
};

/// The version in which an object was last applied, or seen as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The resource version.
    pub version: String,
    /// The digest of the declaration.
    pub hash: String,
}

/// A change by another writer that is not corrected yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The resource version after the change; empty if the object was deleted.
    pub version: String,
    /// The field manager of the writer, as far as it is known.
    pub by: Option<String>,
}

/// What is known of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// The object is as it was declared then.
    pub applied: Option<Applied>,
    /// Why it could not be applied or pruned.
    pub failure: Option<Box<Failure>>,
    /// The change that the next write corrects.
    pub drift: Option<Drift>,
    /// Whether it is left alone until the next retry.
    pub held_back: bool,
    /// Whether it was added to the inventory by this process, and no write of it can have taken effect yet.
    pub is_new: bool,
    /// Whether it was pruned, or left behind.
    pub is_pruned: bool,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object was applied.
    Applied(Applied),
    /// The object is gone, given up or left behind.
    Pruned,
    /// The write failed.
    Failed(Failure),
}

/// The state of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is not complete yet.
    Starting,
    /// Drift is seen at once.
    Ready,
    /// The watch keeps failing, for this reason.
    Failing(String),
    /// The account may not watch, with the answer of the API server.
    Refused(String),
}

/// What is known of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// It does not exist.
    Missing,
    /// It exists.
    Present {
        /// Whether its annotation says that this sync manages it.
        is_ours: bool,
        /// Whether it stays on the cluster when it is pruned.
        is_detached: bool,
    },
    /// It could not be read.
    Unknown,
}

/// The inventory of the sync, as it was last read or written.
#[derive(Default)]
pub struct Inventory {
    /// Its objects; `None` if they must be read first.
    pub objects: Option<BTreeSet<ObjectId>>,
    /// The resource version that was last written.
    pub version: String,
    /// Whether another writer has changed it since.
    pub is_changed: bool,
}

/// What is known of the cluster.
#[derive(Default)]
pub struct Observed {
    /// The inventory of the sync.
    pub inventory: Inventory,
    /// The state of each object that is declared or in the inventory.
    pub objects: HashMap<ObjectId, ObjectState>,
    /// The watches that run or were refused.
    pub watches: BTreeMap<Scope, WatchState>,
    /// The kinds that the account may not watch in all namespaces at once.
    pub refused_for_all: BTreeSet<Scope>,
    /// The namespaces that were read.
    pub namespaces: BTreeMap<String, NamespaceState>,
    /// Objects over which another writer fights.
    pub fights: Fights,
    /// Whether the token of the account was refused.
    pub is_unauthorized: bool,
}

impl Observed {
    /// Whether the inventory held an object before this process wrote it.
    pub fn is_known_ours(&self, id: &ObjectId) -> bool {
        let listed = self.inventory.objects.as_ref();
        listed.is_some_and(|objects| objects.contains(id))
            && !self.objects.get(id).is_some_and(|state| state.is_new)
    }

    /// A new commit was adopted: what was held back is tried again, and used namespaces are read again.
    pub fn start_commit(&mut self, desired: &Desired) {
        self.namespaces.clear();
        self.objects.retain(|id, state| {
            state.held_back = false;
            state.drift = None;
            if !desired.declared.contains_key(id) {
                state.failure = None;
            }
            *state != ObjectState::default()
        });
        self.fights.retain(|id| desired.declared.contains_key(id));
    }

    /// A retry is due: what failed or was refused is tried again.
    pub fn retry(&mut self, desired: &Desired) {
        self.watches
            .retain(|_, state| !matches!(state, WatchState::Refused(_)));
        for (id, state) in &mut self.objects {
            state.held_back = false;
            if state.failure.is_some() && desired.declared.contains_key(id) {
                self.namespaces.remove(&*id.name.namespace);
            }
        }
    }

    /// Objects that no watch covers may have changed unseen.
    pub fn recheck_unwatched(&mut self, desired: &Desired) {
        let refused: Vec<&Scope> = self
            .watches
            .iter()
            .filter(|(_, state)| matches!(state, WatchState::Refused(_)))
            .map(|(scope, _)| scope)
            .collect();
        for (id, state) in &mut self.objects {
            let version = desired.declared.get(id).map(|object| object.version.as_str());
            let is_unwatched = |scope: &&Scope| {
                *scope.group == *id.group
                    && *scope.kind == *id.kind
                    && Some(scope.version.as_str()) == version
                    && (scope.namespace.is_empty() || *scope.namespace == *id.name.namespace)
            };
            if refused.iter().any(is_unwatched) {
                state.applied = None;
            }
        }
    }

    /// Records what a watch has shown.
    pub fn see(&mut self, desired: &Desired, seen: Seen, now: Instant) {
        match seen {
            Seen::Live { id, object, by } => self.see_live(desired, &id, &object, by, now),
            Seen::Gone(id) => {
                let Some(state) = self.objects.get_mut(&id) else {
                    return;
                };
                state.held_back = false;
                if state.applied.take().is_some() && desired.declared.contains_key(&id) {
                    self.note_drift(&id, "", None, now);
                }
            }
            Seen::Ready(scope) => self.set_watch(&scope, WatchState::Ready),
            Seen::Failing(scope, error) => self.set_watch(&scope, WatchState::Failing(error)),
            Seen::Refused(scope, answer) => {
                let is_namespaced = desired.declared.keys().any(|id| {
                    *id.group == *scope.group && *id.kind == *scope.kind && !id.name.namespace.is_empty()
                });
                if scope.namespace.is_empty() && is_namespaced {
                    self.watches.remove(&scope);
                    self.refused_for_all.insert(scope);
                } else {
                    self.set_watch(&scope, WatchState::Refused(answer));
                }
            }
        }
    }

    /// Events of a watch that no longer runs are ignored.
    fn set_watch(&mut self, scope: &Scope, state: WatchState) {
        if let Some(watch) = self.watches.get_mut(scope) {
            *watch = state;
        }
    }

    fn see_live(&mut self, desired: &Desired, id: &ObjectId, live: &Value, by: Option<String>, now: Instant) {
        let Some(declared) = desired.declared.get(id) else {
            return;
        };
        let version = live
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let applied = self.objects.get(id).and_then(|state| state.applied.as_ref());
        if applied.is_some_and(|applied| applied.version == version || is_older(version, &applied.version)) {
            return;
        }
        if declared.ignore_mutation || is_as_declared(live, declared) {
            let state = self.objects.entry(id.clone()).or_default();
            state.applied = Some(Applied {
                version: version.to_owned(),
                hash: declared.hash.clone(),
            });
            state.failure = None;
            state.is_pruned = false;
        } else if let Some(state) = self.objects.get_mut(id)
            && let Some(applied) = state.applied.take()
            && applied.hash == declared.hash
        {
            self.note_drift(id, version, by, now);
        }
    }

    /// An object is no longer as declared. Under a fight it is held back until the next retry.
    fn note_drift(&mut self, id: &ObjectId, version: &str, by: Option<String>, now: Instant) {
        let is_fight = self.fights.is_fight(id, now);
        let state = self.objects.entry(id.clone()).or_default();
        state.held_back |= is_fight;
        state.drift = Some(Drift {
            version: version.to_owned(),
            by,
        });
    }

    /// Records that the inventory was written.
    pub fn record_inventory(&mut self, objects: BTreeSet<ObjectId>, version: String) {
        let before = self.inventory.objects.take().unwrap_or_default();
        for id in objects.difference(&before) {
            let state = self.objects.entry(id.clone()).or_default();
            state.is_new = state.applied.is_none();
        }
        for id in before.difference(&objects) {
            if self.objects.get(id).is_some_and(|state| state.is_pruned) {
                self.objects.remove(id);
            }
        }
        self.inventory = Inventory {
            objects: Some(objects),
            version,
            is_changed: false,
        };
    }

    /// Records the result of a write.
    pub fn record(&mut self, id: &ObjectId, outcome: Outcome, now: Instant) {
        let state = self.objects.entry(id.clone()).or_default();
        match outcome {
            Outcome::Applied(applied) => {
                let drift = state.drift.take();
                // A write that changed nothing corrected nothing: the API server only spells the object differently.
                let corrected = drift.filter(|drift| drift.version != applied.version);
                *state = ObjectState {
                    applied: Some(applied),
                    ..ObjectState::default()
                };
                if let Some(drift) = corrected {
                    self.fights.record(id, drift.by, now);
                }
            }
            Outcome::Pruned => {
                *state = ObjectState {
                    is_pruned: true,
                    ..ObjectState::default()
                };
            }
            Outcome::Failed(failure) => {
                self.is_unauthorized |= failure.cause == Cause::Unauthorized;
                if failure.cause == Cause::NamespaceMissing {
                    self.namespaces.remove(&*id.name.namespace);
                }
                *state = ObjectState {
                    is_new: state.is_new && !failure.cause.may_have_taken_effect(),
                    failure: Some(Box::new(failure)),
                    held_back: true,
                    ..ObjectState::default()
                };
            }
        }
    }

    /// Objects that failed because their namespace was missing are tried again in namespaces that are declared now.
    pub fn retry_in_namespaces(&mut self, namespaces: &BTreeSet<String>) {
        for (id, state) in &mut self.objects {
            let cause = state.failure.as_ref().map(|failure| failure.cause);
            if cause == Some(Cause::NamespaceMissing) && namespaces.contains(&*id.name.namespace) {
                state.held_back = false;
            }
        }
    }

    /// Records how the inventory looks now. Returns true if another writer has changed it.
    pub fn see_inventory(&mut self, objects: &BTreeSet<ObjectId>, version: &str) -> bool {
        let known = self.inventory.objects.as_ref();
        self.inventory.is_changed =
            !is_older(version, &self.inventory.version) && known.is_some_and(|known| known != objects);
        self.inventory.is_changed
    }
}

/// Whether a resource version is older than another one. Versions that are no numbers cannot be compared.
pub fn is_older(version: &str, known: &str) -> bool {
    matches!((version.parse::<u64>(), known.parse::<u64>()), (Ok(version), Ok(known)) if version < known)
}
