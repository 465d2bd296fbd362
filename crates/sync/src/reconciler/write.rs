//! Writes of one pass: what differs is applied, what is not declared any more is taken away.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::api::PropagationPolicy;
use tokio::time::Instant;

use super::{
    apply::{self, Failure, Removal},
    discovery::Kind,
    engine::{Engine, Known},
    object::{Declared, Key, rank, waves},
    problem::Problem,
};
use crate::model::ABANDON;

/// How many objects are written at once.
const WRITERS: usize = 32;
/// How long a new kind may take to be served.
const NEW_KIND: Duration = Duration::from_secs(10);

impl Engine {
    /// Applies what is not as declared: definitions first, then what they define.
    pub(super) async fn apply_dirty(&mut self, dirty: BTreeSet<Key>) {
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
                    // A write that changed nothing corrected nothing: the API server only spells it differently.
                    if let Some(drift) = self.drifted.remove(&key)
                        && drift.version != known.version
                    {
                        self.fights.struck(&key, drift.by, Instant::now());
                    }
                    self.known.insert(key, known);
                }
                Err(failure) => {
                    self.unauthorized |= failure.unauthorized;
                    self.drifted.remove(&key);
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
        if kind.namespaced == key.namespace.is_empty() {
            // It was placed by a definition in Git, and another one is served.
            let problem = Problem::new(
                "1058",
                format!(
                    "{key}: its kind is {}",
                    if kind.namespaced {
                        "in namespaces"
                    } else {
                        "of the cluster"
                    }
                ),
            );
            return Err(Failure {
                problem: problem.at(&object.path).about(key),
                unauthorized: false,
            });
        }
        let claims = self.claims_of(key);
        let version = apply::apply(&self.client, &self.id, &kind, object, &claims).await;
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
    pub(super) async fn prune(&mut self, stale: BTreeSet<Key>) {
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
                    Err(failure) if self.abandons(&failure.problem) => {
                        tracing::warn!(sync = %self.id, object = %key, "the object was left behind, as asked");
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

    /// The kind of an object that the inventory names, if it is still served.
    pub(super) async fn kind_of(&self, key: &Key) -> Result<Option<Kind>, Failure> {
        let kind = self
            .shared
            .discovery
            .resolve_any(&self.client, &key.group, &key.kind);
        kind.await.map_err(|error| Failure {
            problem: Problem::new("2002", error.to_string()).about(key),
            unauthorized: error.is_code(401),
        })
    }

    /// Whether an object is left behind that cannot be taken away for this reason.
    pub(super) fn abandons(&self, problem: &Problem) -> bool {
        self.sync.annotation(ABANDON) == Some("true") && matches!(problem.code, "2009" | "2013")
    }

    async fn prune_one(&self, key: &Key) -> Result<(), Failure> {
        // A kind that is gone has no objects.
        let Some(kind) = self.kind_of(key).await? else {
            return Ok(());
        };
        let (client, id, claims) = (&self.client, &self.id, self.claims());
        let outcome = if self.disabled.contains(key) {
            apply::give_up(client, id, &kind, key, &claims).await
        } else {
            let removal = apply::delete(client, id, &kind, key, PropagationPolicy::Background, &claims).await;
            removal.map(|(Removal::Gone | Removal::Asked)| ())
        };
        self.unless_gone(key, outcome).await
    }

    /// A refusal about an object whose namespace is gone is no failure to take it away.
    pub(super) async fn unless_gone(&self, key: &Key, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match outcome {
            Err(failure) if failure.problem.code == "2013" && self.place_gone(key).await => Ok(()),
            outcome => outcome,
        }
    }
}
