//! Watches sets, their works and decisions; writes works, and the status last.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt};
use writ_api::work::{
    CascadeDeletionPolicy, ManifestWork, ManifestWorkReplicaSet, REPLICA_SET_FINALIZER, REPLICA_SET_LABEL,
};
use writ_controller::{Cache, Controller, Error, Name, Next, Watch, events::Events, write};

use super::{
    apply,
    failures::AllFailures,
    observe,
    plan::{self, Observed, Plan},
    rollout::Group,
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
    let (of_decision, of_namespace, about) = (sets.clone(), reconciler.clone(), sets.clone());
    Controller::new("replica_set", &context.health)
        .watch(&sets, |change| [change.name.clone()])
        .watch(context.caches.works(), |change| {
            // A work that lost its label was made for the set that it named before.
            let (old, new) = (change.old(), change.new.clone());
            old.iter()
                .chain(&new)
                .filter_map(|work| set_of(work))
                .collect::<Vec<_>>()
        })
        .watch(context.caches.decisions(), move |change| {
            let decisions: Vec<_> = change.old().into_iter().chain(change.new.clone()).collect();
            let mut sets = of_decision.in_namespace(&change.name.namespace);
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
                of_namespace.failures.wake(&change.name.name)
            } else {
                Vec::new()
            }
        })
        .report(
            Events::new(context.client.clone(), "writ-hub/replica_set"),
            move |name| about.get(name).map(|set| set.object_ref(&())),
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
            known.follow(set.metadata.generation, Instant::now());
        });
        let mut placements = observe::placements(&self.context, &set);
        let look =
            |placements: &BTreeMap<String, Vec<Group>>, written: &BTreeSet<String>, undeleted: &[String]| {
                plan::plan(&Observed {
                    set: &set,
                    placements,
                    works: &works,
                    unwritten: &self.failures.of(name, |known| known.unwritten(Instant::now())),
                    written,
                    undeleted,
                    now: Timestamp::now(),
                })
            };
        let mut plan = look(&placements, &BTreeSet::new(), &[]);
        if !plan.delete.is_empty() {
            // The decisions of a placement that was deleted go one after the other: that decides nothing.
            let existing = observe::existing_placements(&self.context, &set).await?;
            placements.retain(|name, _| existing.contains(name));
            plan = look(&placements, &BTreeSet::new(), &[]);
        }
        let (written, mut errors) = self
            .write(name, &set, &mut plan, |written| look(&placements, written, &[]))
            .await?;
        let undeleted = apply::delete(self.context.client.clone(), &plan.delete).await;
        if !undeleted.is_empty() {
            let whys: Vec<String> = undeleted.iter().map(ToString::to_string).collect();
            plan = look(&placements, &written, &whys);
        }
        errors.extend(undeleted);
        let next_attempt = self.failures.of(name, |known| {
            known.keep(&plan.failing);
            known.next(Instant::now())
        });
        write::ensure_status(&api, &*set, &plan.status, MANAGER).await?;
        if let Some(error) = apply::joined(errors) {
            return Err(error);
        }
        let next = [plan.look_again, next_attempt].into_iter().flatten().min();
        Ok(next.map_or(Next::Wait, Next::After))
    }

    /// Writes the works of a plan. A cluster that fails may make room for another, or be one too many, so it is planned
    /// anew; each cluster is tried once. Returns the clusters that were written, and what failed.
    async fn write(
        &self,
        name: &Name,
        set: &ManifestWorkReplicaSet,
        plan: &mut Plan,
        look: impl Fn(&BTreeSet<String>) -> Plan,
    ) -> Result<(BTreeSet<String>, Vec<Error>), Error> {
        let (mut written, mut failed, mut errors) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        loop {
            let before = errors.len();
            for wanted in &plan.apply {
                let cluster = wanted.namespace().unwrap_or_default();
                if written.contains(&cluster) || failed.contains(&cluster) {
                    continue;
                }
                match apply::write(self.context.client.clone(), set, wanted).await {
                    Ok(()) => {
                        self.failures.of(name, |known| known.written(&cluster));
                        written.insert(cluster);
                    }
                    // A server that does not answer says nothing about a cluster.
                    Err(error) if error.reason() == "Unreachable" => return Err(error),
                    Err(error) => {
                        self.failures.of(name, |known| {
                            known.failed(&cluster, error.to_string(), Instant::now());
                        });
                        failed.insert(cluster);
                        errors.push(error);
                    }
                }
            }
            if errors.len() == before {
                return Ok((written, errors));
            }
            *plan = look(&written);
        }
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
        let staying = works
            .iter()
            .filter(|work| work.metadata.deletion_timestamp.is_none());
        let undeleted =
            apply::delete(self.context.client.clone(), &staying.cloned().collect::<Vec<_>>()).await;
        if !undeleted.is_empty() {
            let whys: Vec<String> = undeleted.iter().map(ToString::to_string).collect();
            let status = plan::undeleted(set, &whys, Timestamp::now());
            write::ensure_status(api, set, &status, MANAGER).await?;
        }
        if let Some(error) = apply::joined(undeleted) {
            return Err(error);
        }
        let waits =
            set.spec.cascade_deletion_policy == CascadeDeletionPolicy::Foreground && !works.is_empty();
        if !waits {
            write::set_finalizer(api, set, REPLICA_SET_FINALIZER, false, MANAGER).await?;
        }
        Ok(Next::Wait)
    }
}
