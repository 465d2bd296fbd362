//! One pass: watch, apply what differs, prune what is not declared any more, report.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{
    apply::inventory,
    engine::{Engine, Unresolved},
    error::{Code, Problem},
    object::Key,
    status,
};

/// Why an object is not applied yet.
fn unknown(object: &Unresolved) -> Problem {
    let raw = &object.raw;
    let what = format!("kind {} in {}", raw.kind(), raw.api_version());
    match &object.said {
        None => Problem::new(Code::UnknownKind, format!("the API server knows no {what}")),
        Some(said) => Problem::new(
            Code::ApiServer,
            format!(
                "the API server does not tell whether it knows {what}; nothing is deleted meanwhile: {said}"
            ),
        ),
    }
    .at(&raw.path)
}

impl Engine {
    /// Brings the cluster to what is declared.
    pub(super) async fn pass(&mut self) {
        self.general.clear();
        if self.commit.is_some() && self.state.rendering.is_empty() {
            self.homeless.clear();
            self.sync_objects().await;
            // A namespace that was there when the source was read, and is not any more, is made in this very pass.
            let homeless = std::mem::take(&mut self.homeless);
            if !homeless.is_empty() && self.imply_namespaces(homeless.clone()).await {
                self.held_back.retain(|key| !homeless.contains(&key.namespace));
                self.sync_objects().await;
            }
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
            .chain(self.unresolved.iter().map(unknown))
            .chain(self.fights.going_on(Instant::now()))
            .chain(self.failing.iter().map(|(scope, said)| {
                Problem::new(
                    Code::ApiServer,
                    format!("drift of {} is not seen, as its watch fails: {said}", scope.kind),
                )
            }))
            .chain(self.refused.values().map(|said| {
                Problem::new(
                    Code::InsufficientPermission,
                    format!("drift is corrected once a minute instead of at once, as the reconciler may not watch: {said}"),
                )
            }))
            .collect();
        let clean =
            self.state.source.is_empty() && self.state.rendering.is_empty() && self.state.sync.is_empty();
        if clean && self.state.sync_commit.is_some() && self.state.sync_commit == self.commit {
            self.state.synced.clone_from(&self.commit);
        }
        self.state.reading = self.looked != Some(self.sync.generation());
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
                    self.general.push(Problem::new(Code::ApiServer, error.to_string()));
                    return;
                }
            }
        }
        if let Some(problem) = self.drops_all_namespaces().await {
            self.general.push(problem);
            return;
        }
        let due = std::mem::take(&mut self.namespaces_due);
        self.imply_namespaces(due).await;
        self.watch_declared().await;
        let dirty = self.dirty();
        let stale = self.stale();
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
            // Anew: a kind that was not known before declares its objects now, and only now is all that is declared known.
            if let Some(problem) = self.drops_all_namespaces().await {
                self.general.push(problem);
                return;
            }
            self.prune(self.stale()).await;
        }
        self.state.sync_commit.clone_from(&self.commit);
        self.save_inventory().await;
    }

    /// What is declared but not known to be so, and is not to be left alone for now.
    pub(super) fn dirty(&self) -> BTreeSet<Key> {
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

    /// What is in the inventory but not declared any more, and is not to be left alone for now.
    fn stale(&self) -> BTreeSet<Key> {
        self.inventory
            .iter()
            .flatten()
            .filter(|key| !self.declared.contains_key(key) && !self.held_back.contains(key))
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
            (true, Some(problem)) if problem.code == Code::ManagementConflict => false,
            // It was refused and never made. Where nobody answered it may have been.
            (true, Some(problem)) => problem.code == Code::ApiServer || !self.fresh.contains(key),
            (true, None) => true,
        }
    }

    async fn write_inventory(&mut self, keys: BTreeSet<Key>) -> Result<(), Problem> {
        if self.inventory.as_ref() == Some(&keys) && !self.inventory_changed {
            return Ok(());
        }
        match inventory::write(&self.client, &self.id, &keys).await {
            Ok(version) => {
                self.inventory_version = version;
                self.inventory_changed = false;
                self.inventory = Some(keys);
                Ok(())
            }
            Err(error) => {
                self.unauthorized |= error.is_code(401);
                self.inventory = None;
                Err(Problem::new(Code::ApiServer, error.to_string()))
            }
        }
    }
}
