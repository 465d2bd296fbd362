//! The life of one reconciler: wait for something to happen, then do what it asks for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use tokio::{
    sync::{Notify, mpsc, watch as channel},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use writ_api::kpt::ResourceGroup;
use writ_controller::{
    Error,
    backoff::Backoff,
    health::Gate,
    tolerant::{Guarded, guarded},
};

use super::{
    Identities, Inputs, Shared,
    apply::inventory,
    desired::{Ask, Fetching},
    drift::{
        backoff::Fights,
        watch::{Scope, Seen, Watch, older},
    },
    error::Problem,
    object::{Declared, Key, Raw},
    status,
};
use crate::{
    clients::Identity,
    model::{RECONCILER_FINALIZER, SYSTEM_NAMESPACE, Sync, SyncId},
    names,
};

/// How many events may wait for the reconciler.
const EVENTS: usize = 1024;
/// What is not watched, as the account may not, is compared this often.
const UNWATCHED: Duration = Duration::from_mins(1);

/// Which version of an object was last found or made as declared.
#[derive(Debug)]
pub(super) struct Known {
    pub version: String,
    pub hash: String,
}

/// How an object looked that was not as declared any more.
#[derive(Debug)]
pub(super) struct Drift {
    pub version: String,
    pub by: Option<String>,
}

/// An object whose kind is not known.
#[derive(Debug)]
pub(super) struct Unresolved {
    pub raw: Raw,
    /// What was said where the API server could not tell; nothing if there is no such kind.
    pub said: Option<String>,
}

/// One reconciler.
pub(super) struct Engine {
    pub shared: Arc<Shared>,
    pub id: SyncId,
    pub sync: Arc<Sync>,
    pub client: Client,
    pub _identity: Option<Identity>,
    /// The generation of the spec that the source was last looked at for.
    pub looked: Option<i64>,
    /// The commit that was parsed, and what was asked for then.
    pub commit: Option<String>,
    pub asked: Option<Ask>,
    /// Problems of the files of that commit, apart from those of reaching it.
    pub parse_problems: Vec<Problem>,
    /// Objects of kinds that the API server does not know yet, or could not be asked for.
    pub unresolved: Vec<Unresolved>,
    pub declared: BTreeMap<Key, Declared>,
    /// Objects that the source says are not to be managed.
    pub disabled: BTreeSet<Key>,
    pub known: HashMap<Key, Known>,
    pub failed: BTreeMap<Key, Problem>,
    /// What somebody else changed since it was last as declared.
    pub drifted: HashMap<Key, Drift>,
    pub fights: Fights,
    /// The repository is being read.
    pub fetching: Option<Fetching>,
    pub inventory: Option<BTreeSet<Key>>,
    /// The version of it that was last written here.
    pub inventory_version: String,
    /// Whether somebody else changed it since.
    pub inventory_changed: bool,
    pub watches: HashMap<Scope, Watch>,
    pub ready: BTreeSet<Scope>,
    pub refused: BTreeMap<Scope, String>,
    /// Watches that fail again and again, and try on.
    pub failing: BTreeMap<Scope, String>,
    pub events: mpsc::Receiver<Seen>,
    pub sender: mpsc::Sender<Seen>,
    pub state: status::State,
    /// Whether the account's token was refused.
    pub unauthorized: bool,
    /// What went wrong in the last pass with no object in particular.
    pub general: Vec<Problem>,
    /// What the current pass adds to the inventory.
    pub fresh: BTreeSet<Key>,
    /// What was refused, and is not tried again before its time.
    pub held_back: BTreeSet<Key>,
    /// The namespaces of what failed, which are to be looked for again.
    pub namespaces_due: BTreeSet<String>,
    /// The namespaces that were not there when something was applied to them.
    pub homeless: BTreeSet<String>,
    /// Kinds that may not be watched in all namespaces at once.
    pub refused_everywhere: BTreeSet<Scope>,
    /// Whether a watch on all namespaces was just refused.
    pub split: bool,
}

/// After which part of its period a sync looks for the second time: syncs that begin at once, as after a start, then
/// look one after another, and none ever waits for longer than its period.
fn share(id: &SyncId) -> f64 {
    let mut hasher = std::hash::DefaultHasher::new();
    id.hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() % 1000).unwrap_or_default() + 1) / 1000.0
}

/// Runs a reconciler until it is stopped. Without an identity there is nothing it can do but try again.
pub async fn run(shared: Arc<Shared>, mut inputs: Inputs) {
    let stop = inputs.stop.clone();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        let sync = inputs.sync.borrow_and_update().clone();
        let id = sync.id.clone();
        let identity = match &shared.clients {
            Identities::Own(client) => Ok((client.clone(), None)),
            Identities::PerSync(clients) => clients
                .identity(SYSTEM_NAMESPACE, &names::reconciler(&id))
                .await
                .map(|identity| (identity.client.clone(), Some(identity))),
        };
        match identity {
            Ok((client, identity)) => {
                backoff.reset();
                let engine = Engine::new(shared.clone(), sync, client, identity);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = engine.live(&mut inputs) => {}
                }
            }
            Err(error) => tracing::warn!(sync = %id, %error, "no identity yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = inputs.poke.notified() => {}
            () = tokio::time::sleep(backoff.next_delay()) => {}
        }
    }
}

/// Runs one reconciler that watches its own sync, with the identity of this process.
pub async fn follow(
    shared: Arc<Shared>,
    client: Client,
    id: SyncId,
    gate: Gate,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let resource = id.kind.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &id.namespace, &resource);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", id.name));
    let groups: Api<Guarded<ResourceGroup>> = Api::namespaced(client, &id.namespace);
    let groups = guarded(groups, config.clone())
        .default_backoff()
        .applied_objects();
    let mut groups = std::pin::pin!(groups);
    let (inventory, seen) = channel::channel(None);
    let mut events = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    let poke = Arc::new(Notify::new());
    let mut task: Option<(channel::Sender<Arc<Sync>>, tokio::task::JoinHandle<()>)> = None;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(group) = groups.next() => {
                if let Ok(group) = group {
                    inventory.send_replace(Some(Arc::new(group)));
                }
                continue;
            }
            event = events.next() => event,
        };
        let Some(event) = event else { break };
        let object = match event {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(sync = %id, %error, "the watch on the sync failed, will try again");
                continue;
            }
        };
        gate.open();
        let Some(sync) = Sync::read(id.kind, &object) else {
            continue;
        };
        if sync.spec.is_err() && !sync.deleting() {
            continue;
        }
        if let Some((sender, _)) = &task {
            // The manager has bound something, or a role or namespace is there by now.
            let rights_changed = sender.borrow().status.role_refs != sync.status.role_refs;
            let _ = sender.send(Arc::new(sync));
            if rights_changed {
                poke.notify_one();
            }
        } else {
            let (sender, receiver) = channel::channel(Arc::new(sync));
            let inputs = Inputs {
                sync: receiver,
                inventory: seen.clone(),
                poke: poke.clone(),
                stop: shutdown.clone(),
            };
            task = Some((sender, tokio::spawn(run(shared.clone(), inputs))));
        }
    }
    if let Some((_, handle)) = task {
        let _ = handle.await;
    }
    Ok(())
}

impl Engine {
    fn new(shared: Arc<Shared>, sync: Arc<Sync>, client: Client, identity: Option<Identity>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        Self {
            shared,
            id: sync.id.clone(),
            // What was reported before a restart stands until it is known to be otherwise.
            state: status::State::restored(&sync.status),
            sync,
            client,
            _identity: identity,
            looked: None,
            commit: None,
            asked: None,
            parse_problems: Vec::new(),
            unresolved: Vec::new(),
            declared: BTreeMap::new(),
            disabled: BTreeSet::new(),
            known: HashMap::new(),
            failed: BTreeMap::new(),
            drifted: HashMap::new(),
            fights: Fights::default(),
            fetching: None,
            inventory: None,
            inventory_version: String::new(),
            inventory_changed: false,
            watches: HashMap::new(),
            ready: BTreeSet::new(),
            refused: BTreeMap::new(),
            failing: BTreeMap::new(),
            events,
            sender,
            unauthorized: false,
            general: Vec::new(),
            fresh: BTreeSet::new(),
            held_back: BTreeSet::new(),
            namespaces_due: BTreeSet::new(),
            homeless: BTreeSet::new(),
            refused_everywhere: BTreeSet::new(),
            split: false,
        }
    }

    /// Works until the account's token is refused.
    async fn live(mut self, inputs: &mut Inputs) {
        let mut next_poll = Instant::now();
        let mut share = share(&self.id);
        let mut next_compare = Instant::now() + UNWATCHED;
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut retry: Option<Instant> = None;
        loop {
            let trouble = if self.sync.deleting() {
                if self.sync.has_finalizer(RECONCILER_FINALIZER) {
                    // In a box, which an idle sync does not keep.
                    !Box::pin(self.finalize()).await
                } else {
                    false
                }
            } else {
                if Instant::now() >= next_poll && self.fetching.is_none() {
                    next_poll = Instant::now() + self.period().mul_f64(std::mem::replace(&mut share, 1.0));
                    self.start_fetch();
                }
                if Instant::now() >= next_compare {
                    self.doubt_unwatched();
                    next_compare = Instant::now() + UNWATCHED;
                }
                Box::pin(self.pass()).await;
                !self.general.is_empty()
                    || !self.failed.is_empty()
                    || !self.unresolved.is_empty()
                    || !self.refused.is_empty()
                    || self.fights.any()
            };
            if self.unauthorized {
                tracing::info!(sync = %self.id, "the token was refused, asking for another one");
                return;
            }
            if !trouble {
                backoff.reset();
                retry = None;
            } else if retry.is_none() {
                retry = Some(Instant::now() + backoff.next_delay());
            }
            let due = retry.unwrap_or_else(|| Instant::now() + UNWATCHED);
            let deleting = self.sync.deleting();
            // Wait until something can have changed. Reports of our own come back as a change of the sync and are not one.
            loop {
                tokio::select! {
                    changed = inputs.sync.changed() => {
                        if changed.is_err() {
                            return std::future::pending().await;
                        }
                        let sync = inputs.sync.borrow_and_update().clone();
                        let asked = sync.generation() != self.sync.generation()
                            || sync.metadata.annotations != self.sync.metadata.annotations
                            || sync.deleting() != self.sync.deleting()
                            || sync.metadata.uid != self.sync.metadata.uid
                            || sync.metadata.finalizers != self.sync.metadata.finalizers;
                        self.sync = sync;
                        if asked {
                            next_poll = Instant::now();
                            backoff.reset();
                            retry = None;
                            self.forgive();
                            break;
                        }
                    }
                    Ok(()) = inputs.inventory.changed(), if !deleting => {
                        let seen = inputs.inventory.borrow_and_update().clone();
                        if seen.is_some_and(|seen| self.notice_inventory(&seen)) {
                            break;
                        }
                    }
                    () = inputs.poke.notified(), if trouble => {
                        backoff.reset();
                        retry = None;
                        self.forgive();
                        break;
                    }
                    () = tokio::time::sleep_until(due), if trouble => {
                        retry = None;
                        self.forgive();
                        break;
                    }
                    () = tokio::time::sleep_until(next_poll), if !deleting && self.fetching.is_none() => break,
                    fetched = super::desired::finished(&mut self.fetching), if !deleting => {
                        if !Box::pin(self.adopt_fetched(fetched)).await {
                            next_poll = Instant::now();
                        }
                        break;
                    }
                    Some(seen) = self.events.recv(), if !deleting => {
                        self.observe(seen);
                        while let Ok(seen) = self.events.try_recv() {
                            self.observe(seen);
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Takes note of the inventory in the cluster; returns whether somebody else made it another one.
    fn notice_inventory(&mut self, seen: &ResourceGroup) -> bool {
        let version = seen.metadata.resource_version.as_deref().unwrap_or_default();
        self.inventory_changed = !older(version, &self.inventory_version)
            && self
                .inventory
                .as_ref()
                .is_some_and(|keys| *keys != inventory::keys(seen));
        self.inventory_changed
    }

    /// Forgets refusals, so that they are tried again.
    fn forgive(&mut self) {
        for scope in std::mem::take(&mut self.refused).into_keys() {
            self.watches.remove(&scope);
        }
        self.held_back.clear();
        let failed = self.failed.keys().filter(|key| self.declared.contains_key(key));
        self.namespaces_due = failed.map(|key| key.namespace.clone()).collect();
    }

    /// Objects that no watch covers may have changed unseen.
    fn doubt_unwatched(&mut self) {
        let refused = &self.refused;
        let declared = &self.declared;
        self.known.retain(|key, _| {
            declared.get(key).is_none_or(|object| {
                !refused.keys().any(|scope| {
                    scope.group == key.group
                        && scope.kind == key.kind
                        && scope.version == object.version
                        && (scope.namespace.is_empty() || scope.namespace == key.namespace)
                })
            })
        });
    }

    fn period(&self) -> Duration {
        let git = self.sync.spec.as_ref().ok().and_then(|spec| spec.git.as_ref());
        git.and_then(|git| git.period.as_deref())
            .and_then(super::desired::duration)
            .unwrap_or(Duration::from_secs(15))
    }
}
