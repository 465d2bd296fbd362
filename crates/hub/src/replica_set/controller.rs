//! Watches sets, their works and their decisions; writes works, and the status last.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt};
use writ_api::work::{
    CascadeDeletionPolicy, ManifestWork, ManifestWorkReplicaSet, REPLICA_SET_FINALIZER, REPLICA_SET_LABEL,
};
use writ_controller::{Cache, Controller, Error, Name, Next, Watch, events::Events, write};

use super::{
    apply,
    failures::AllFailures,
    model::{Attempts, Group, Observed, Plan},
    observe, plan,
};
use crate::{Context, MANAGER};

/// How many sets are reconciled side by side.
const CONCURRENCY: usize = 5;

struct Reconciler {
    context: Context,
    sets: Cache<ManifestWorkReplicaSet>,
    failures: AllFailures,
}

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let sets = Watch::new(Api::all(context.client.clone())).start(&context.shutdown);
    let reconciler = Arc::new(Reconciler {
        sets: sets.clone(),
        failures: AllFailures::default(),
        context: context.clone(),
    });
    let (sets_of_decision, waiting, described) = (sets.clone(), reconciler.clone(), sets.clone());
    Controller::new("replica_set", &context.health)
        .watch(&sets, |change| [change.name.clone()])
        .watch(context.caches.works(), |change| {
            // A work that lost its label was made for the set that the label named.
            let (old, new) = (change.old(), change.new.clone());
            old.iter()
                .chain(&new)
                .filter_map(|work| set_of(work))
                .collect::<Vec<_>>()
        })
        .watch(context.caches.decisions(), move |change| {
            let decisions: Vec<_> = change.old().into_iter().chain(change.new.clone()).collect();
            let mut sets = sets_of_decision.in_namespace(&change.name.namespace);
            sets.retain(|(_, set)| {
                decisions
                    .iter()
                    .any(|decision| observe::is_concerned(set, decision))
            });
            sets.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        })
        .watch_unawaited(context.caches.namespaces(), move |change| {
            let alive = change
                .new
                .as_ref()
                .is_some_and(|new| new.metadata.deletion_timestamp.is_none());
            if alive {
                waiting.failures.wake(&change.name.name)
            } else {
                Vec::new()
            }
        })
        .report(
            Events::new(context.client.clone(), "writ-hub/replica_set"),
            move |name| described.get(name).map(|set| set.object_ref(&())),
        )
        .run(CONCURRENCY, &context.shutdown, |name| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&name).await }
        })
        .await;
    Ok(())
}

/// The set that a work was made for.
fn set_of(work: &ManifestWork) -> Option<Name> {
    let (namespace, name) = work.labels().get(REPLICA_SET_LABEL)?.split_once('.')?;
    Some(Name::new(namespace, name))
}

impl Reconciler {
    async fn reconcile(&self, name: &Name) -> Result<Next, Error> {
        let Some(set) = self.sets.get(name) else {
            self.failures.forget(name);
            return Ok(Next::Wait);
        };
        let api: Api<ManifestWorkReplicaSet> = write::namespaced(&self.context.client, &name.namespace);
        let works = observe::works(&self.context, &set);
        if set.metadata.deletion_timestamp.is_some() {
            self.failures.forget(name);
            return self.finalize(&set, &api, &works).await;
        }
        write::set_finalizer(&api, &*set, REPLICA_SET_FINALIZER, true, MANAGER).await?;
        self.failures.of(name, |known| {
            known.follow_generation(set.metadata.generation, Instant::now());
        });
        let mut placements = observe::placements(&self.context, &set);
        let mut plan = self.plan(&set, &placements, &works, Attempts::default());
        if !plan.delete.is_empty() {
            // Decisions are deleted one by one with their placement, which must not delete works.
            let existing = observe::existing_placements(&self.context, &set).await?;
            placements.retain(|name, _| existing.contains(name));
            plan = self.plan(&set, &placements, &works, Attempts::default());
        }
        let replan = |attempts: Attempts<'_>| self.plan(&set, &placements, &works, attempts);
        let client = &self.context.client;
        let written = apply::write_works(client, &set, &mut plan, &self.failures, &replan).await?;
        let undeleted = apply::delete_works(client, &plan.delete).await;
        if !undeleted.is_empty() {
            let reasons: Vec<String> = undeleted.iter().map(ToString::to_string).collect();
            plan = replan(Attempts {
                written: &written.clusters,
                undeleted: &reasons,
            });
        }
        let next_attempt = self.failures.of(name, |known| {
            known.retain(&plan.failing);
            known.next_attempt(Instant::now())
        });
        write::ensure_status(&api, &*set, &plan.status, MANAGER).await?;
        apply::combined(written.errors.into_iter().chain(undeleted))?;
        let next = [plan.look_again, next_attempt].into_iter().flatten().min();
        Ok(next.map_or(Next::Wait, Next::After))
    }

    fn plan(
        &self,
        set: &ManifestWorkReplicaSet,
        placements: &BTreeMap<String, Vec<Group>>,
        works: &[ManifestWork],
        attempts: Attempts<'_>,
    ) -> Plan {
        let unwritten = self
            .failures
            .of(&Name::of(set), |known| known.unwritten(Instant::now()));
        plan::plan(&Observed {
            set,
            placements,
            works,
            unwritten: &unwritten,
            attempts,
            now: Timestamp::now(),
        })
    }

    async fn finalize(
        &self,
        set: &ManifestWorkReplicaSet,
        api: &Api<ManifestWorkReplicaSet>,
        works: &[ManifestWork],
    ) -> Result<Next, Error> {
        if !set
            .finalizers()
            .iter()
            .any(|known| known == REPLICA_SET_FINALIZER)
        {
            return Ok(Next::Wait);
        }
        let remaining: Vec<_> = works
            .iter()
            .filter(|work| work.metadata.deletion_timestamp.is_none())
            .cloned()
            .collect();
        let undeleted = apply::delete_works(&self.context.client, &remaining).await;
        if !undeleted.is_empty() {
            let reasons: Vec<String> = undeleted.iter().map(ToString::to_string).collect();
            let status = plan::undeleted(set, &reasons, Timestamp::now());
            write::ensure_status(api, set, &status, MANAGER).await?;
        }
        apply::combined(undeleted)?;
        let waits =
            set.spec.cascade_deletion_policy == CascadeDeletionPolicy::Foreground && !works.is_empty();
        if !waits {
            write::set_finalizer(api, set, REPLICA_SET_FINALIZER, false, MANAGER).await?;
        }
        Ok(Next::Wait)
    }
}
