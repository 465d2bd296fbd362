//! One pass: watch, apply what differs, prune what is not declared any more, report.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::api::PropagationPolicy;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    apply::{self, Failure, Removal},
    discovery::Kind,
    engine::{Engine, Known},
    inventory,
    object::{Declared, Key, rank, settled, waves},
    problem::Problem,
    status,
    watch::{self, Scope, Seen},
};
use crate::names;

/// How many objects are written at once.
const WRITERS: usize = 32;
/// How long watches may take to show what is there.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// How long a new kind may take to be served.
const NEW_KIND: Duration = Duration::from_secs(10);
/// In more namespaces than this, one watch for all is tried first.
const FEW: usize = 3;

impl Engine {
    /// Brings the cluster to what is declared.
    pub(super) async fn pass(&mut self) {
        self.general.clear();
        if self.commit.is_some() && self.state.rendering.is_empty() {
            self.sync_objects().await;
        }
        self.state.busy = false;
        self.report().await;
    }

    async fn report(&mut self) {
        self.state.sync = self
            .general
            .iter()
            .chain(self.failed.values())
            .cloned()
            .chain(self.unresolved.iter().map(|raw| {
                Problem::new(
                    "1021",
                    format!("the API server knows no kind {} in {}", raw.kind(), raw.api_version()),
                )
                .at(&raw.path)
            }))
            .chain(self.refused.values().map(|said| {
                Problem::new(
                    "2013",
                    format!("drift is corrected once a minute instead of at once, as the reconciler may not watch: {said}"),
                )
            }))
            .collect();
        let clean =
            self.state.source.is_empty() && self.state.rendering.is_empty() && self.state.sync.is_empty();
        if clean && self.state.sync_commit.is_some() && self.state.sync_commit == self.commit {
            self.state.synced.clone_from(&self.commit);
        }
        if let Err(error) = status::write(&self.client, &self.sync, &self.state).await {
            self.unauthorized |= error.is_code(401);
            tracing::warn!(sync = %self.id, %error, "the status was not written");
        }
    }

    async fn sync_objects(&mut self) {
        if self.inventory.is_none() {
            match inventory::read(&self.client, &self.id).await {
                Ok(keys) => self.inventory = Some(keys),
                Err(error) => {
                    self.unauthorized |= error.is_code(401);
                    self.general.push(Problem::new("2002", error.to_string()));
                    return;
                }
            }
        }
        if let Some(problem) = self.drops_all_namespaces() {
            self.general.push(problem);
            return;
        }
        self.watch_declared().await;
        let dirty = self.dirty();
        let mut stale = self.stale();
        stale.retain(|key| !self.held_back.contains(key));
        if dirty.is_empty() && stale.is_empty() && self.unresolved.is_empty() {
            self.state.sync_commit.clone_from(&self.commit);
            self.save_inventory().await;
            return;
        }
        if self.state.sync_commit != self.commit && dirty.len() + stale.len() > 1 {
            self.state.busy = true;
            self.report().await;
        }
        // Before anything is made: what is not in the inventory would be forgotten by a crash.
        let mut all: BTreeSet<Key> = self.inventory.clone().unwrap_or_default();
        self.fresh = dirty.difference(&all).cloned().collect();
        all.extend(dirty.iter().cloned());
        if let Err(problem) = self.write_inventory(all).await {
            self.general.push(problem);
            return;
        }
        self.apply_dirty(dirty).await;
        if self.parse_problems.is_empty() && self.unresolved.is_empty() {
            self.prune(stale).await;
        }
        self.state.sync_commit.clone_from(&self.commit);
        self.save_inventory().await;
    }

    /// A commit that drops every namespace at once is more likely a mistake than a wish.
    fn drops_all_namespaces(&self) -> Option<Problem> {
        let namespace = |key: &&Key| key.group.is_empty() && key.kind == "Namespace";
        let before = self.inventory.iter().flatten().filter(namespace).count();
        let after = self.declared.keys().filter(namespace).count();
        (before >= 2 && after == 0 && self.unresolved.is_empty()).then(|| {
            Problem::new(
                "2006",
                format!("the commit would delete all {before} namespaces of this sync; delete all but one first if that is meant"),
            )
        })
    }

    /// What is declared but not known to be so, and is not to be left alone for now.
    fn dirty(&self) -> BTreeSet<Key> {
        self.declared
            .values()
            .filter(|object| {
                let known = self.known.get(&object.key);
                known.is_none_or(|known| known.hash != object.hash)
            })
            .map(|object| object.key.clone())
            .filter(|key| !self.held_back.contains(key))
            .collect()
    }

    /// What is in the inventory but not declared any more.
    fn stale(&self) -> BTreeSet<Key> {
        self.inventory
            .iter()
            .flatten()
            .filter(|key| !self.declared.contains_key(key))
            .cloned()
            .collect()
    }

    /// What shall stay in the inventory after a pass: what is declared and may exist, and what could not be pruned.
    async fn save_inventory(&mut self) {
        let before = self.inventory.clone().unwrap_or_default();
        let mut after: BTreeSet<Key> = self
            .declared
            .keys()
            // What was refused and never made is not ours to delete later.
            .filter(|key| self.known.contains_key(key))
            .cloned()
            .collect();
        after.extend(before.iter().filter(|key| self.keeps(key)).cloned());
        self.state.objects = after.len();
        if let Err(problem) = self.write_inventory(after).await {
            self.general.push(problem);
        }
    }

    /// Whether an object of the inventory stays in it although it is not known to be as declared.
    fn keeps(&self, key: &Key) -> bool {
        match (self.declared.contains_key(key), self.failed.get(key)) {
            // Not pruned yet: the prune was refused, or the source has errors and nothing is pruned.
            (false, failed) => {
                failed.is_some() || !self.parse_problems.is_empty() || !self.unresolved.is_empty()
            }
            // Somebody else has it.
            (true, Some(problem)) if problem.code == "1060" => false,
            // It was refused and never made. Where nobody answered it may have been.
            (true, Some(problem)) => problem.code == "2002" || !self.fresh.contains(key),
            (true, None) => true,
        }
    }

    async fn write_inventory(&mut self, keys: BTreeSet<Key>) -> Result<(), Problem> {
        if self.inventory.as_ref() == Some(&keys) {
            return Ok(());
        }
        match inventory::write(&self.client, &self.id, &keys).await {
            Ok(()) => {
                self.inventory = Some(keys);
                Ok(())
            }
            Err(error) => {
                self.unauthorized |= error.is_code(401);
                self.inventory = None;
                Err(Problem::new("2002", error.to_string()))
            }
        }
    }

    async fn apply_dirty(&mut self, dirty: BTreeSet<Key>) {
        let (first, rest): (Vec<Key>, Vec<Key>) = dirty.into_iter().partition(|key| rank(key) == 0);
        let new_kinds = !first.is_empty();
        self.apply_all(first).await;
        let deadline = Instant::now() + if new_kinds { NEW_KIND } else { Duration::ZERO };
        loop {
            self.resolve_again().await;
            let waiting = !self.unresolved.is_empty() || self.unserved(&rest).await;
            if !waiting || Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let late: Vec<Key> = self.dirty().into_iter().filter(|key| rank(key) > 0).collect();
        self.apply_all(late).await;
        if new_kinds {
            self.watch_declared().await;
        }
    }

    /// Whether a kind that is about to be applied is not served yet.
    async fn unserved(&self, keys: &[Key]) -> bool {
        let kinds: BTreeSet<(&str, &str, &str)> = keys
            .iter()
            .filter_map(|key| {
                let object = self.declared.get(key)?;
                Some((key.group.as_str(), object.version.as_str(), key.kind.as_str()))
            })
            .collect();
        for (group, version, kind) in kinds {
            let found = self
                .shared
                .discovery
                .resolve(&self.client, group, version, kind)
                .await;
            if matches!(found, Ok(None)) {
                return true;
            }
        }
        false
    }

    async fn apply_all(&mut self, keys: Vec<Key>) {
        let objects: Vec<&Declared> = keys.iter().filter_map(|key| self.declared.get(key)).collect();
        let (groups, circle) = waves(&objects);
        let mut outcomes: Vec<(Key, Result<Known, Failure>)> = Vec::new();
        for index in circle {
            if let Some(object) = objects.get(index) {
                let problem = Problem::new(
                    "2010",
                    format!(
                        "{} and the objects it depends on wait for each other in a circle",
                        object.key
                    ),
                );
                outcomes.push((
                    object.key.clone(),
                    Err(Failure {
                        problem: problem.at(&object.path).about(&object.key),
                        unauthorized: false,
                    }),
                ));
            }
        }
        for group in groups {
            let this = &*self;
            let work: Vec<BoxFuture<'_, _>> = group
                .into_iter()
                .filter_map(|index| objects.get(index).copied())
                .map(|object| async move { (object.key.clone(), this.apply_one(object).await) }.boxed())
                .collect();
            let mut done = stream::iter(work).buffer_unordered(WRITERS);
            while let Some(outcome) = done.next().await {
                outcomes.push(outcome);
            }
        }
        for (key, outcome) in outcomes {
            match outcome {
                Ok(known) => {
                    self.failed.remove(&key);
                    self.known.insert(key, known);
                }
                Err(failure) => {
                    self.unauthorized |= failure.unauthorized;
                    self.known.remove(&key);
                    self.held_back.insert(key.clone());
                    self.failed.insert(key, failure.problem);
                }
            }
        }
    }

    async fn apply_one(&self, object: &Declared) -> Result<Known, Failure> {
        let key = &object.key;
        let kind = self.kind(key, &object.version).await.map_err(|problem| Failure {
            problem: problem.at(&object.path).about(key),
            unauthorized: false,
        })?;
        let version = apply::apply(&self.client, &self.id, &kind, object).await;
        if let Err(failure) = &version
            && failure
                .problem
                .message
                .contains("could not find the requested resource")
        {
            self.shared.discovery.forget(&key.group, &object.version);
        }
        Ok(Known {
            version: version?,
            hash: object.hash.clone(),
        })
    }

    async fn kind(&self, key: &Key, version: &str) -> Result<Kind, Problem> {
        let found = self
            .shared
            .discovery
            .resolve(&self.client, &key.group, version, &key.kind)
            .await;
        match found {
            Ok(Some(kind)) => Ok(kind),
            Ok(None) => Err(Problem::new(
                "1021",
                format!("the API server knows no kind of {key}"),
            )),
            Err(error) => Err(Problem::new("2002", error.to_string())),
        }
    }

    /// Takes away what is not declared any more, what others need last.
    async fn prune(&mut self, stale: BTreeSet<Key>) {
        let mut order: BTreeMap<u8, Vec<Key>> = BTreeMap::new();
        for key in stale {
            order.entry(u8::MAX - rank(&key)).or_default().push(key);
        }
        for keys in order.into_values() {
            let this = &*self;
            let work: Vec<BoxFuture<'_, _>> = keys
                .into_iter()
                .map(|key| {
                    async move {
                        let outcome = this.prune_one(&key).await;
                        (key, outcome)
                    }
                    .boxed()
                })
                .collect();
            let outcomes: Vec<(Key, Result<(), Failure>)> =
                stream::iter(work).buffer_unordered(WRITERS).collect().await;
            for (key, outcome) in outcomes {
                self.known.remove(&key);
                match outcome {
                    Ok(()) => {
                        self.failed.remove(&key);
                    }
                    Err(failure) => {
                        self.unauthorized |= failure.unauthorized;
                        self.held_back.insert(key.clone());
                        self.failed.insert(key, failure.problem);
                    }
                }
            }
        }
    }

    async fn prune_one(&self, key: &Key) -> Result<(), Failure> {
        let kind = self
            .shared
            .discovery
            .resolve_any(&self.client, &key.group, &key.kind)
            .await
            .map_err(|error| Failure {
                problem: Problem::new("2002", error.to_string()).about(key),
                unauthorized: error.is_code(401),
            })?;
        // A kind that is gone has no objects.
        let Some(kind) = kind else { return Ok(()) };
        if self.disabled.contains(key) {
            return apply::give_up(&self.client, &self.id, &kind, key).await;
        }
        match apply::delete(&self.client, &self.id, &kind, key, PropagationPolicy::Background).await? {
            Removal::Gone | Removal::Asked => Ok(()),
        }
    }

    /// Watches every kind that is declared, where it is declared, and learns what is there already.
    async fn watch_declared(&mut self) {
        let mut places: BTreeMap<(String, String, String), BTreeSet<String>> = BTreeMap::new();
        for object in self.declared.values() {
            places
                .entry((
                    object.key.group.clone(),
                    object.version.clone(),
                    object.key.kind.clone(),
                ))
                .or_default()
                .insert(object.key.namespace.clone());
        }
        let mut wanted: BTreeSet<Scope> = BTreeSet::new();
        for ((group, version, kind), namespaces) in places {
            let scope = |namespace: &str| Scope {
                group: group.clone(),
                version: version.clone(),
                kind: kind.clone(),
                namespace: namespace.to_owned(),
            };
            let everywhere = scope("");
            if namespaces.len() > FEW && !self.refused_everywhere.contains(&everywhere) {
                wanted.insert(everywhere);
            } else {
                wanted.extend(namespaces.iter().map(|namespace| scope(namespace)));
            }
        }
        self.watches.retain(|scope, _| wanted.contains(scope));
        self.ready.retain(|scope| wanted.contains(scope));
        self.refused.retain(|scope, _| wanted.contains(scope));
        let set = names::apply_set(&self.id);
        for scope in &wanted {
            if self.watches.contains_key(scope) || self.refused.contains_key(scope) {
                continue;
            }
            let found = self
                .shared
                .discovery
                .resolve(&self.client, &scope.group, &scope.version, &scope.kind)
                .await;
            // A kind that is not served yet is watched when it is.
            let Ok(Some(kind)) = found else { continue };
            let watch = watch::start(&self.client, &kind, scope.clone(), &set, self.sender.clone());
            self.watches.insert(scope.clone(), watch);
        }
        let deadline = Instant::now() + FIRST_LOOK;
        while self.watches.keys().any(|scope| !self.ready.contains(scope)) {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some(seen)) => self.observe(seen),
                Ok(None) | Err(_) => break,
            }
        }
        // A watch on all namespaces that was refused becomes one per namespace.
        if self.split {
            self.split = false;
            Box::pin(self.watch_declared()).await;
        }
    }

    /// Takes note of what a watch saw.
    pub(super) fn observe(&mut self, seen: Seen) {
        match seen {
            Seen::Live(key, live) => self.observe_live(&key, &live),
            Seen::Gone(key) => {
                self.held_back.remove(&key);
                self.known.remove(&key);
            }
            Seen::Ready(scope) => {
                self.ready.insert(scope);
            }
            Seen::Refused(scope, said) => {
                self.watches.remove(&scope);
                self.ready.remove(&scope);
                let namespaced = self.declared.keys().any(|key| {
                    key.group == scope.group && key.kind == scope.kind && !key.namespace.is_empty()
                });
                if scope.namespace.is_empty() && namespaced {
                    self.refused_everywhere.insert(scope);
                    self.split = true;
                } else {
                    self.refused.insert(scope, said);
                }
            }
        }
    }

    fn observe_live(&mut self, key: &Key, live: &Value) {
        let Some(object) = self.declared.get(key) else {
            return;
        };
        let version = live
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(known) = self.known.get(key) {
            let older = match (version.parse::<u64>(), known.version.parse::<u64>()) {
                (Ok(seen), Ok(known)) => seen < known,
                _ => false,
            };
            if known.version == version || older {
                return;
            }
        }
        if object.ignore_mutation || settled(live, object) {
            self.known.insert(
                key.clone(),
                Known {
                    version: version.to_owned(),
                    hash: object.hash.clone(),
                },
            );
        } else {
            self.known.remove(key);
        }
    }
}
