//! What a cluster does by itself: garbage collection, namespaces, definitions, aggregation, certificates, tokens, policies.
//!
//! The store names what may need work, as a set; one task per server works it off and sleeps. Every task looks at the state as it
//! is, so it does not matter how often or in which order it runs.

mod admitted;
pub(crate) mod aggregate;
mod certificates;
mod definitions;
mod garbage;
mod namespaces;
mod policies;
pub(crate) mod quotas;
mod retry;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

use admitted::Who;

use crate::auth::Authorizer;
use crate::registry::{self, Registry, Resource};
use crate::state::State;
use crate::status;
use crate::store::{Change, Event, Expect, Object, Observer, Refused, TableId, Uid};

pub(crate) use definitions::{TERMINATING, mark as mark_crd};

pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Who owns what controllers write.
const MANAGER: &str = "kube-controller-manager";

/// Something that may need work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// A namespace: its furniture, or its end.
    Namespace(Arc<str>),
    /// A definition: its conditions, or its end.
    Definition(Arc<str>),
    /// An object with owners, or one that waits for its dependents.
    Object(TableId, Arc<str>),
    /// The dependents of an object that is gone.
    Dependents(Uid),
    /// An object that may wait for one that is gone.
    Owner(Uid),
    /// Aggregated roles.
    Aggregate,
    /// A certificate request.
    Certificate(Arc<str>),
    /// An admission policy: its status.
    Policy(Arc<str>),
    /// The Secret of a ServiceAccount's token, or all of a namespace when an account is gone.
    TokenSecret(Arc<str>),
    TokenSecrets(Arc<str>),
    /// The Secret of a token that was used today for the first time.
    TokenUsed(Arc<str>),
    /// The quotas of a namespace.
    Quota(Arc<str>),
}

/// The set of tasks.
#[derive(Default)]
pub(crate) struct Work {
    tasks: Mutex<BTreeSet<Task>>,
    wake: Notify,
    /// Namespaces and definitions that wait for their content to go.
    emptying: Mutex<BTreeSet<Arc<str>>>,
    /// Objects with an owner of a kind that is not served.
    puzzling: Mutex<BTreeSet<Task>>,
    /// Tasks under way beside all others, and whether to do them once more after that.
    running: Mutex<BTreeMap<Task, bool>>,
    /// One definition after the other: two at once might take the same names.
    naming: tokio::sync::Mutex<()>,
    claims: definitions::Claims,
    retries: retry::Retries,
    /// Namespaces with quotas.
    limited: Mutex<BTreeMap<Arc<str>, Limited>>,
}

/// A namespace with quotas.
#[derive(Default)]
struct Limited {
    /// How many requests have taken from them and not yet stored their objects.
    taking: usize,
    /// Held by the request that writes what it takes, where others have a say about that.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Work {
    pub fn push(&self, task: Task) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(task);
        self.wake.notify_one();
    }

    fn take(&self) -> BTreeSet<Task> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has been seen to already.
    pub fn forget(&self, task: &Task) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(task);
    }

    /// Whether a task may begin; one that is under way is done once more after that.
    fn begin(&self, task: &Task) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = running.get_mut(task) {
            *again = true;
            return false;
        }
        running.insert(task.clone(), false);
        true
    }

    fn end(&self, task: Task) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let again = running.remove(&task);
        drop(running);
        if again == Some(true) {
            self.push(task);
        }
    }

    /// Looks at something again when other kinds are served.
    fn puzzle(&self, task: Task) {
        self.puzzling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(task);
    }

    fn solved(&self, task: &Task) {
        self.puzzling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(task);
    }

    fn kinds_changed(&self) {
        let puzzling = std::mem::take(&mut *self.puzzling.lock().unwrap_or_else(PoisonError::into_inner));
        for task in puzzling {
            self.push(task);
        }
    }

    fn limited(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, Limited>> {
        self.limited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, namespace: &Arc<str>) {
        self.limited().entry(namespace.clone()).or_default().taking += 1;
    }

    fn turn(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.limited().entry(namespace.into()).or_default().turn.clone()
    }

    fn uncharge(&self, namespace: &str) {
        if let Some(limited) = self.limited().get_mut(namespace) {
            limited.taking = limited.taking.saturating_sub(1);
        }
    }

    fn is_charged(&self, namespace: &str) -> bool {
        self.limited()
            .get(namespace)
            .is_some_and(|limited| limited.taking > 0)
    }

    fn set_limited(&self, namespace: &str, limited: bool) {
        let mut all = self.limited();
        if limited {
            all.entry(namespace.into()).or_default();
        } else if all.get(namespace).is_some_and(|limited| limited.taking == 0) {
            all.remove(namespace);
        }
    }

    /// Has the quotas of a namespace counted again, if there are any.
    fn count(&self, namespace: &str) {
        let limited = self.limited().contains_key(namespace);
        if limited {
            self.push(Task::Quota(namespace.into()));
        }
    }

    fn is_emptying(&self, name: &str) -> bool {
        self.emptying
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(name)
    }

    fn set_emptying(&self, name: &Arc<str>, emptying: bool) {
        let mut set = self.emptying.lock().unwrap_or_else(PoisonError::into_inner);
        if emptying {
            set.insert(name.clone());
        } else {
            set.remove(name);
        }
    }
}

/// Works off the tasks until the server stops.
pub(crate) async fn run(state: Arc<State>) {
    loop {
        let tasks = state.work.take();
        if tasks.is_empty() {
            tokio::select! {
                () = state.stop.cancelled() => return,
                () = state.work.wake.notified() => {}
            }
            continue;
        }
        // What cannot be kept is not done.
        for task in tasks.into_iter().filter(|_| state.store.writable().is_ok()) {
            dispatch(&state, task).await;
            tokio::task::yield_now().await;
        }
    }
}

/// Works off everything that is there now, for a server that is about to be handed out.
pub(crate) async fn settle(state: &Arc<State>) {
    for _ in 0..16 {
        let tasks = state.work.take();
        if tasks.is_empty() {
            return;
        }
        for task in tasks {
            dispatch(state, task).await;
        }
    }
}

/// Whoever is asked about a write may be slow, or say no. Nothing else waits for that.
async fn dispatch(state: &Arc<State>, task: Task) {
    if !admitted::is_anybody_asked(state) {
        return work(state, &task).await;
    }
    if !state.work.begin(&task) {
        return;
    }
    let state = state.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = state.stop.cancelled() => {}
            () = work(&state, &task) => {}
        }
        state.work.end(task);
    });
}

async fn work(state: &Arc<State>, task: &Task) {
    let outcome = match task {
        Task::Namespace(name) => namespaces::sync(state, name).await,
        Task::Definition(name) => definitions::sync(state, name).await,
        Task::Aggregate => aggregate::sync(state).await,
        Task::Certificate(name) => certificates::sync(state, name).await,
        Task::Policy(name) => policies::sync(state, name).await,
        Task::TokenSecret(key) => tokens::sync(state, key).await,
        Task::Quota(namespace) => quotas::sync(state, namespace).await,
        // These are about many objects, each of which is tried again by itself.
        Task::Object(table, key) => return garbage::sync(state, table, key).await,
        Task::Dependents(uid) => return garbage::orphaned(state, *uid).await,
        Task::Owner(uid) => return garbage::waiting(state, *uid).await,
        Task::TokenUsed(key) => return tokens::used(state, key).await,
        Task::TokenSecrets(namespace) => return tokens::sync_all(state, namespace).await,
    };
    retry::settle(state, task, outcome);
}

/// Writes an object of the server's own making through one of its doors. Those who have a say may refuse it; when nobody has one
/// and somebody else was faster, the task is done again at once.
async fn write(
    state: &Arc<State>,
    who: Who,
    door: &str,
    current: &Object,
    value: Value,
    again: impl FnOnce() -> Task,
) -> status::Result<()> {
    if admitted::is_anybody_asked(state) {
        return admitted::put(state, who, door, current, value).await;
    }
    match store_as(state, who.owner(), door, current, value) {
        Ok(_) => {}
        // It would be so again.
        Err(Refused::TooLarge) => tracing::warn!(object = %current.key, "too large to be written"),
        Err(_) => state.work.push(again()),
    }
    Ok(())
}

/// Stores an object of the server's own making in the name of one of its parts, unless somebody else was faster.
fn store_as(
    state: &State,
    manager: &str,
    subresource: &str,
    current: &Object,
    mut value: Value,
) -> Result<Arc<Object>, Refused> {
    let snapshot = state.registry.snapshot();
    // Nobody owns fields of signing requests.
    let tracked = |resource: &&Arc<Resource>| *resource.table != *certificates::TABLE;
    if let Some(resource) = snapshot.by_table(&current.table).filter(tracked) {
        let version = resource.storage.as_str();
        let schema = resource
            .version(version)
            .and_then(|v| v.schema.as_deref().cloned());
        let manager = crate::ssa::Manager {
            name: manager,
            subresource,
            time: state.clock.now(),
            force: false,
            api_version: &resource.api_version(version),
            ignored: if subresource == "status" {
                &["spec"]
            } else {
                &["status"]
            },
            versions: &resource.owners_versions(),
            variants: resource.variants(version),
            others: resource.other_owners(),
        };
        let schema = schema.unwrap_or_else(crate::schema::Schema::anything);
        crate::ssa::track_update(Some(&current.value()), &mut value, &manager, &schema);
    }
    state.store.put(&current.table, Expect::At(current.rv), value)
}

/// A resource, and the resourceVersion since which it is so.
type Since = (Arc<Resource>, u64);

/// Follows the store: keeps the indexes, and names what may need work.
pub(crate) struct Follower {
    pub authorizer: Arc<Authorizer>,
    pub registry: Arc<Registry>,
    pub work: Arc<Work>,
    custom: Mutex<BTreeMap<Arc<str>, Since>>,
    aggregation: aggregate::Aggregation,
}

impl Follower {
    pub fn new(authorizer: Arc<Authorizer>, registry: Arc<Registry>, work: Arc<Work>) -> Self {
        Self {
            authorizer,
            registry,
            work,
            custom: Mutex::default(),
            aggregation: aggregate::Aggregation::default(),
        }
    }

    /// Serves what a definition says, once it is established.
    fn define(&self, event: &Event, value: &Value) {
        let name = event.object.key.clone();
        let mut custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = registry::established(value) && !registry::is_shadowed(&name);
        let resource = (event.change != Change::Deleted && serves)
            .then(|| registry::from_crd(value).ok())
            .flatten();
        let waits = event.change != Change::Deleted && resource.is_none();
        let names = value.pointer("/status/acceptedNames");
        self.work.claims.set(&name, names.filter(|_| waits).cloned());
        let changed = match resource {
            Some(resource) => {
                let same = custom
                    .get(&name)
                    .is_some_and(|(have, _)| Arc::ptr_eq(have, &resource));
                if !same {
                    custom.insert(name.clone(), (resource, event.rv));
                }
                !same
            }
            None => custom.remove(&name).is_some(),
        };
        if changed {
            self.registry.set_custom(custom.values());
            self.work.kinds_changed();
        }
        self.work.push(Task::Definition(name));
    }
}

impl Observer for Follower {
    fn changed(&self, event: &Event, value: &Value) {
        let object = &event.object;
        let deleted = event.change == Change::Deleted;
        self.authorizer.changed(event, value);
        let key = || object.key.clone();
        match &*object.table {
            CRDS => self.define(event, value),
            "namespaces" => self.work.push(Task::Namespace(key())),
            aggregate::ROLES => {
                let concerned = |role: &Object| self.aggregation.concerns(&role.value());
                if self.aggregation.concerns(value) || event.previous.as_deref().is_some_and(concerned) {
                    self.work.push(Task::Aggregate);
                }
            }
            "certificatesigningrequests.certificates.k8s.io" if !deleted => {
                self.work.push(Task::Certificate(key()));
            }
            policies::TABLE if !deleted => self.work.push(Task::Policy(key())),
            "serviceaccounts" => {
                self.work.push(Task::TokenSecrets(object.namespace().into()));
                if deleted && object.name() == "default" {
                    self.work.push(Task::Namespace(object.namespace().into()));
                }
            }
            "configmaps" if object.name() == namespaces::ROOT_CA => {
                self.work.push(Task::Namespace(object.namespace().into()));
            }
            "secrets" if !deleted => self.work.push(Task::TokenSecret(key())),
            quotas::TABLE => self.work.set_limited(object.namespace(), true),
            _ => {}
        }
        self.work.count(object.namespace());
        if deleted {
            self.work.push(Task::Dependents(object.uid));
            if !object.owners.is_empty() {
                self.work.solved(&Task::Object(object.table.clone(), key()));
            }
            for owner in &object.owners {
                self.work.push(Task::Owner(*owner));
            }
            if self.work.is_emptying(&object.table) {
                self.work.push(Task::Definition(object.table.clone()));
            }
            let namespace = object.namespace();
            if !namespace.is_empty() && self.work.is_emptying(namespace) {
                self.work.push(Task::Namespace(namespace.into()));
            }
        } else if !object.owners.is_empty() || object.deleting {
            self.work.push(Task::Object(object.table.clone(), key()));
        }
    }
}
