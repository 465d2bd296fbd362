//! Executes the actions of a plan: objects of a wave are written at once, and each result goes into what is observed.

use std::sync::Arc;

use futures::{StreamExt as _, future::BoxFuture, stream};
use kube::{
    api::{DynamicObject, PropagationPolicy},
    core::GroupVersionKind,
};
use tokio::time::Instant;
use writ_controller::{ObjectId, RestMapper, ServedKind};

use super::{
    apply::{Ownership, Writer},
    desired::{Desired, served_in_other_scope},
    error::{Cause, Code, Failure, Problem},
    object::{Declared, full_name},
    observed::{Applied, Observed, Outcome},
    plan::{Actions, Prune},
};
use crate::model::ABANDON;

/// The number of objects that are written at once.
const WRITERS: usize = 32;
/// The number of versions in which an object of the inventory is looked for.
const VERSIONS: usize = 4;

/// Executes actions with the account of one sync.
#[derive(Clone, Copy)]
pub struct Executor<'a> {
    /// Writes single objects.
    pub writer: Writer<'a>,
    /// The kinds that the API server serves.
    pub mapper: &'a RestMapper,
}

impl Executor<'_> {
    fn ownership(&self) -> Ownership<'_> {
        self.writer.ownership
    }

    /// Whether the sync asks to leave behind objects that cannot be removed.
    pub fn abandons(&self) -> bool {
        self.ownership().sync.annotation(ABANDON) == Some("true")
    }

    /// Executes actions. Returns the definitions that were applied and are not established yet.
    pub async fn execute(
        &self,
        actions: Actions,
        desired: &Desired,
        observed: &mut Observed,
    ) -> Vec<ObjectId> {
        let mut pending = Vec::new();
        for (id, failure) in actions.cyclic {
            observed.record(&id, Outcome::Failed(failure), Instant::now());
        }
        for wave in &actions.apply {
            for (id, result) in self.apply_wave(wave, desired, observed).await {
                let outcome = match result {
                    Err(failure) => Outcome::Failed(failure),
                    Ok((applied, live)) => {
                        if actions.definitions.contains(&id) && !is_established(&live.data) {
                            pending.push(id.clone());
                        }
                        Outcome::Applied(applied)
                    }
                };
                observed.record(&id, outcome, Instant::now());
            }
        }
        for wave in &actions.prune {
            for (id, outcome) in self.prune_wave(wave).await {
                observed.record(&id, outcome, Instant::now());
            }
        }
        pending
    }

    async fn apply_wave(
        &self,
        wave: &[ObjectId],
        desired: &Desired,
        observed: &Observed,
    ) -> Vec<(ObjectId, Result<(Applied, DynamicObject), Failure>)> {
        let objects = wave.iter().filter_map(|id| desired.declared.get(id));
        let writes: Vec<BoxFuture<'_, _>> = objects
            .map(|object| -> BoxFuture<'_, _> {
                let is_known_ours = observed.is_known_ours(&object.id);
                Box::pin(async move { (object.id.clone(), self.apply(object, is_known_ours).await) })
            })
            .collect();
        stream::iter(writes).buffer_unordered(WRITERS).collect().await
    }

    async fn apply(
        &self,
        object: &Declared,
        is_known_ours: bool,
    ) -> Result<(Applied, DynamicObject), Failure> {
        let kind = self.kind(object).await?;
        if kind.namespaced == object.id.name.namespace.is_empty() {
            // The definition in Git has another scope than the one that is served.
            return Err(Failure::refused(served_in_other_scope(object, kind.namespaced)));
        }
        let applied = self.writer.apply(&kind, object, is_known_ours).await;
        if let Err(failure) = &applied
            && failure.cause == Cause::KindNotServed
        {
            self.mapper.forget(&object.id.group);
        }
        let live = applied?;
        let applied = Applied {
            version: live.metadata.resource_version.clone().unwrap_or_default(),
            hash: object.hash.clone(),
        };
        Ok((applied, live))
    }

    async fn kind(&self, object: &Declared) -> Result<Arc<ServedKind>, Failure> {
        let problem = |code, message: String| Problem::new(code, message).at(&object.path).about(&object.id);
        match self.mapper.find(self.writer.client, &object.gvk()).await {
            Ok(Some(kind)) => Ok(kind),
            Ok(None) => {
                let message = format!(
                    "the API server does not serve the kind of {}",
                    full_name(&object.id)
                );
                Err(Failure::refused(problem(Code::UnknownKind, message)))
            }
            Err(error) => Err(Failure::of_code(
                problem(Code::ApiServer, error.to_string()),
                error.code(),
            )),
        }
    }

    async fn prune_wave(&self, wave: &[Prune]) -> Vec<(ObjectId, Outcome)> {
        let prunes: Vec<BoxFuture<'_, _>> = wave
            .iter()
            .map(|prune| -> BoxFuture<'_, _> {
                Box::pin(async move { (prune.id().clone(), self.prune(prune).await) })
            })
            .collect();
        stream::iter(prunes).buffer_unordered(WRITERS).collect().await
    }

    async fn prune(&self, prune: &Prune) -> Outcome {
        let id = prune.id();
        let pruned = self
            .in_any_version(id, |kind| {
                Box::pin(async move {
                    match prune {
                        Prune::GiveUp(_) => self.writer.give_up(&kind, id).await,
                        Prune::Delete(_) => {
                            let removal = self.writer.delete(&kind, id, PropagationPolicy::Background);
                            removal.await.map(drop)
                        }
                    }
                })
            })
            .await;
        match pruned {
            Ok(()) => Outcome::Pruned,
            Err(failure) if self.abandons() && failure.cause.may_be_abandoned() => {
                let sync = &self.ownership().sync.id;
                tracing::warn!(%sync, object = %id, "the object is left behind, as the sync asks");
                Outcome::Pruned
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    /// Acts on an object of the inventory in a version that is served. An object whose kind or namespace is gone is gone.
    pub async fn in_any_version<'a>(
        &'a self,
        id: &'a ObjectId,
        act: impl Fn(Arc<ServedKind>) -> BoxFuture<'a, Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut result = Ok(());
        for _ in 0..VERSIONS {
            let found = self
                .mapper
                .find_in_any_version(self.writer.client, &id.group, &id.kind)
                .await;
            let found = found.map_err(|error| {
                let problem = Problem::new(Code::ApiServer, error.to_string()).about(id);
                Failure::of_code(problem, error.code())
            })?;
            let Some(kind) = found else { return Ok(()) };
            result = act(kind).await;
            if !matches!(&result, Err(failure) if failure.cause == Cause::KindNotServed) {
                break;
            }
            self.mapper.forget(&id.group);
        }
        match result {
            Err(failure)
                if failure.cause == Cause::Forbidden && self.ownership().is_gone_with_namespace(id).await =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Whether every one of these kinds is served.
    pub async fn are_served(&self, kinds: impl IntoIterator<Item = &GroupVersionKind>) -> bool {
        for kind in kinds {
            if matches!(self.mapper.find(self.writer.client, kind).await, Ok(None)) {
                return false;
            }
        }
        true
    }
}

/// Whether the API server has established a CustomResourceDefinition.
pub fn is_established(definition: &serde_json::Value) -> bool {
    let conditions = definition
        .pointer("/status/conditions")
        .and_then(serde_json::Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let field = |name: &str| condition.get(name).and_then(serde_json::Value::as_str);
        field("type") == Some("Established") && field("status") == Some("True")
    })
}
