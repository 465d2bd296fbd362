//! Writes of one pass: what differs is applied, what is not declared any more is taken away.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::api::PropagationPolicy;
use tokio::time::Instant;

use super::{
    apply::{self, Cause, Failure, Removal},
    engine::{Engine, Known},
    error::{Code, Problem},
    object::{Declared, Key, rank, waves},
    rest_mapper::Kind,
};
use crate::model::ABANDON;

/// How many objects are written at once.
const WRITERS: usize = 32;
/// In how many versions an object is looked for, before another pass does.
const VERSIONS: usize = 4;
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
            if new_kinds {
                self.shared.discovery.doubt();
            }
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
                    Code::Resource,
                    format!(
                        "{} and the objects it depends on wait for each other in a circle",
                        object.key
                    ),
                );
                let problem = problem.at(&object.path).about(&object.key);
                outcomes.push((object.key.clone(), Err(Failure::refused(problem))));
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
                    self.unauthorized |= failure.cause == Cause::Unauthorized;
                    if failure.cause == Cause::Homeless {
                        self.homeless.insert(key.namespace.clone());
                    }
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
        let unknown = |problem: Problem| Failure::refused(problem.at(&object.path).about(key));
        let kind = self.kind(key, &object.version).await.map_err(unknown)?;
        if kind.namespaced == key.namespace.is_empty() {
            // It was placed by a definition in Git, and another one is served.
            let problem = Problem::new(
                Code::BadScope,
                format!(
                    "{key}: its kind is {}",
                    if kind.namespaced {
                        "in namespaces"
                    } else {
                        "of the cluster"
                    }
                ),
            );
            return Err(Failure::refused(problem.at(&object.path).about(key)));
        }
        let claims = self.claims_of(key);
        let version = apply::apply(&self.client, &self.id, &kind, object, &claims).await;
        if let Err(failure) = &version
            && failure.cause == Cause::Unserved
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
                Code::UnknownKind,
                format!("the API server knows no kind of {key}"),
            )),
            Err(error) => Err(Problem::new(Code::ApiServer, error.to_string())),
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
                        let act = |kind| {
                            let key = key.clone();
                            async move { this.prune_one(&key, &kind).await }.boxed()
                        };
                        let outcome = this.in_any_version(&key, act).await;
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
                    Err(failure) if self.abandons(&failure) => {
                        tracing::warn!(sync = %self.id, object = %key, "the object was left behind, as asked");
                        self.failed.remove(&key);
                    }
                    Err(failure) => {
                        self.unauthorized |= failure.cause == Cause::Unauthorized;
                        self.held_back.insert(key.clone());
                        self.failed.insert(key, failure.problem);
                    }
                }
            }
        }
    }

    /// Does something to an object that the inventory names, in a version that is served. A kind that is gone has no
    /// objects.
    pub(super) async fn in_any_version<'a>(
        &'a self,
        key: &Key,
        act: impl Fn(Kind) -> BoxFuture<'a, Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for _ in 0..VERSIONS {
            let discovery = &self.shared.discovery;
            let found = discovery.resolve_any(&self.client, &key.group, &key.kind).await;
            let found = found.map_err(|error| {
                Failure::of(Problem::new(Code::ApiServer, error.to_string()).about(key), error.code())
            })?;
            let Some(kind) = found else { return Ok(()) };
            let version = kind.resource.version.clone();
            outcome = act(kind).await;
            if !matches!(&outcome, Err(failure) if failure.cause == Cause::Unserved) {
                break;
            }
            discovery.forget(&key.group, &version);
        }
        self.unless_gone(key, outcome).await
    }

    /// Whether an object is left behind that cannot be taken away for this reason: any, as long as somebody gave one.
    pub(super) fn abandons(&self, failure: &Failure) -> bool {
        self.sync.annotation(ABANDON) == Some("true")
            && matches!(failure.cause, Cause::Refused | Cause::Unserved | Cause::Homeless)
    }

    async fn prune_one(&self, key: &Key, kind: &Kind) -> Result<(), Failure> {
        let (client, id, claims) = (&self.client, &self.id, self.claims());
        if self.disabled.contains(key) {
            return apply::give_up(client, id, kind, key, &claims).await;
        }
        let removal = apply::delete(client, id, kind, key, PropagationPolicy::Background, &claims).await;
        removal.map(|(Removal::Gone | Removal::Asked)| ())
    }

    /// A refusal about an object whose namespace is gone is no failure to take it away.
    async fn unless_gone(&self, key: &Key, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match outcome {
            Err(failure) if failure.problem.code == Code::InsufficientPermission && self.place_gone(key).await => Ok(()),
            outcome => outcome,
        }
    }
}
