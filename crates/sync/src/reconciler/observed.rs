//! Watches the declared objects, and notes what differs from the source.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    drift::watch::{self, Scope, Seen, older},
    engine::{Drift, Engine, Known},
    object::{Key, settled},
};
use crate::names;

/// How long watches may take to show what is there.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// In more namespaces than this, one watch for all is tried first.
const FEW: usize = 3;

impl Engine {
    /// Watches every kind that is declared, where it is declared, and learns what is there already.
    pub(super) async fn watch_declared(&mut self) {
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
        self.failing.retain(|scope, _| wanted.contains(scope));
        let set = names::apply_set(&self.id);
        let mut started: BTreeSet<Scope> = BTreeSet::new();
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
            self.ready.remove(scope);
            started.insert(scope.clone());
        }
        // For the new ones only: one that does not get ready must not hold up every pass.
        let deadline = Instant::now() + FIRST_LOOK;
        let waits = |this: &Self, scope: &Scope| {
            this.watches.contains_key(scope)
                && !this.ready.contains(scope)
                && !this.failing.contains_key(scope)
        };
        while started.iter().any(|scope| waits(self, scope)) {
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
            Seen::Live { key, object, by } => self.observe_live(&key, &object, by),
            Seen::Gone(key) => {
                self.held_back.remove(&key);
                if self.known.remove(&key).is_some() && self.declared.contains_key(&key) {
                    self.drifted(key, "", None);
                }
            }
            Seen::Ready(scope) => {
                self.failing.remove(&scope);
                self.ready.insert(scope);
            }
            Seen::Failing(scope, said) => {
                if self.watches.contains_key(&scope) {
                    self.failing.insert(scope, said);
                }
            }
            Seen::Refused(scope, said) => {
                self.watches.remove(&scope);
                self.ready.remove(&scope);
                self.failing.remove(&scope);
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

    fn observe_live(&mut self, key: &Key, live: &Value, by: Option<String>) {
        let Some(object) = self.declared.get(key) else {
            return;
        };
        let version = live
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(known) = self.known.get(key)
            && (known.version == version || older(version, &known.version))
        {
            return;
        }
        if object.ignore_mutation || settled(live, object) {
            self.known.insert(
                key.clone(),
                Known {
                    version: version.to_owned(),
                    hash: object.hash.clone(),
                },
            );
        } else if self
            .known
            .remove(key)
            .is_some_and(|known| known.hash == object.hash)
        {
            self.drifted(key.clone(), version, by);
        }
    }

    /// Somebody may have changed what was as declared; applying it will show. Whoever does so again and again is not
    /// answered at once any more.
    fn drifted(&mut self, key: Key, version: &str, by: Option<String>) {
        if self.fights.fighting(&key) {
            self.held_back.insert(key.clone());
        }
        self.drifted.insert(
            key,
            Drift {
                version: version.to_owned(),
                by,
            },
        );
    }
}
