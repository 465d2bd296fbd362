//! Reconciles one work: judge → deliver → record → report.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::{ResourceExt, core::GroupVersionKind};
use tokio::{sync::Notify, time::Instant};
use writ_api::work::{
    AppliedManifestWork, AppliedResource, MANIFEST_WORK_NAME_LIMIT, ManifestWork, ManifestWorkStatus,
};
use writ_controller::{Error, condition, queue::Next};

use super::{
    apply::{
        ConflictCheck,
        delete::Deletion,
        pass::{CONCURRENCY, CheckedConflicts, Pass, reported_manifests},
        prune::StillPresent,
    },
    gate::LISTED_WITHIN,
    model::{
        Key, ManifestOutcome, ManifestReport, OwnedObject, PlannedManifest, RecordedUids, ServedKinds,
        Verdict,
    },
    plan::{
        self,
        delivery::{Delivery, Unfinished},
        rbac::refuses_foreign,
        records::{dropped, recorded, records_after, uids_of},
    },
    state::Agent,
    status::{
        self,
        pruning::{describe_still_present, set_pruned},
        size_limit::stored_size,
        unwatched::set_watched,
    },
};
use crate::owner::Owner;

/// How long revocations wait for the writes of the same revision.
const GRANTED_WITHIN: Duration = Duration::from_secs(1);

/// What was found out about a work before anything is written.
struct Judgement {
    manifests: Arc<[PlannedManifest]>,
    verdict: Verdict,
    checked: CheckedConflicts,
    /// The dropped objects that are known to belong to the work.
    dropped: BTreeMap<AppliedResource, OwnedObject>,
}

impl Agent {
    /// Reconciles one work.
    pub async fn reconcile_work(&self, name: &str) -> Result<Next, Error> {
        let key = Key::work(name);
        let Some((work, problem)) = self.works.partial(&self.name_of_work(name)) else {
            self.forget_work(name);
            return Ok(Next::Wait);
        };
        let applied = self.applied(&self.applied_name(name));
        if work.metadata.deletion_timestamp.is_some() {
            let owned = match &applied {
                Some(applied) => self.owned_objects(&key, applied, recorded(applied)).await,
                None => BTreeMap::new(),
            };
            self.stop_delivering(&key);
            return self.finalize_work(&work, applied, &owned).await;
        }
        let problem = problem.map(|problem| format!("this agent cannot parse it: {problem}"));
        if let Some(problem) = problem.or_else(|| why_too_long(name)) {
            self.stop_delivering(&key);
            self.report_broken(&work, &problem).await?;
            return Ok(Next::Wait);
        }
        self.states.with(name, |state| state.reported_broken = None);
        let (metadata, applied, judgement) = futures::try_join!(
            self.ensure_finalizer(&work),
            self.ensure_applied(name, applied.as_ref()),
            self.judge(&key, &work, applied.as_ref())
        )?;
        let mut work = Arc::unwrap_or_clone(work);
        if let Some(metadata) = metadata {
            work.metadata = metadata;
            self.works.record(work.clone())?;
        }
        let applied = self.refresh_applied(applied, &work).await?;
        let Some(judgement) = judgement else {
            // The gate queues the work as soon as RBAC is known; if that takes long, the work has to report it.
            return Ok(Next::After(LISTED_WITHIN));
        };
        self.deliver(&key, &work, &applied, &judgement).await
    }

    /// Finds out what a work asks for and whether that may be written.
    async fn judge(
        &self,
        key: &Key,
        work: &ManifestWork,
        applied: Option<&AppliedManifestWork>,
    ) -> Result<Option<Judgement>, Error> {
        let name = work.name_any();
        let kinds = self.served_kinds(work).await;
        let manifests: Arc<[PlannedManifest]> = plan::manifests(&work.spec, &kinds).into();
        let records = applied.map(recorded).unwrap_or_default();
        // Read before the interest in dropped objects ends, and with it what is known of them.
        let dropped_records = dropped(records, &manifests);
        let dropped = match applied {
            Some(applied) => self.owned_objects(key, applied, &dropped_records).await,
            None => BTreeMap::new(),
        };
        self.watch_work(&name, &manifests, &dropped_records).await;
        // When this revision, or a later one, was first seen.
        let since = self.works.since(&self.name_of_work(&name));
        let since = since.unwrap_or_else(Instant::now);
        let executor = work.spec.executor.as_ref();
        let Some(verdict) = self.gate.check(key, executor, &manifests, since).await? else {
            return Ok(None);
        };
        let checked = if executor.is_none() {
            self.check_new_objects(key, &name, &manifests, &uids_of(records))
                .await
        } else {
            CheckedConflicts::default()
        };
        Ok(Some(Judgement {
            manifests,
            verdict,
            checked,
            dropped,
        }))
    }

    /// Checks objects for conflicts that were not written by this process, if their manifests refuse foreign ones.
    async fn check_new_objects(
        &self,
        key: &Key,
        work: &str,
        manifests: &[PlannedManifest],
        recorded: &RecordedUids<'_>,
    ) -> CheckedConflicts {
        let manager = Owner::manager_of(&self.applied_name(work));
        let conflicts = ConflictCheck::new(&self.spoke, manager, manifests, recorded);
        let new = manifests.iter().filter_map(|manifest| {
            let target = manifest.target.as_ref().ok();
            let target = target.filter(|target| refuses_foreign(target))?;
            let last_seen = self
                .drift
                .last_seen(key, &target.kind.resource, &target.full_name());
            last_seen.is_none().then_some((manifest.ordinal, target))
        });
        let checks: Vec<_> = new
            .map(|(ordinal, target)| {
                let conflicts = &conflicts;
                async move { (ordinal, conflicts.check(target).await) }
            })
            .collect();
        stream::iter(checks).buffer_unordered(CONCURRENCY).collect().await
    }

    /// Delivers a revision: records, writes, prunes and revokes in the order of its plan, then reports.
    async fn deliver(
        &self,
        key: &Key,
        work: &ManifestWork,
        applied: &AppliedManifestWork,
        judgement: &Judgement,
    ) -> Result<Next, Error> {
        let Judgement {
            manifests,
            verdict,
            checked,
            dropped,
        } = judgement;
        let current = self
            .states
            .with(&work.name_any(), |state| state.in_flight.latest(work).last);
        let is_complete = condition::is_true(&current.conditions, status::COMPLETE);
        let owner = Owner::from(applied);
        let uids = uids_of(recorded(applied));
        let delivery = Delivery::plan(manifests, verdict, recorded(applied), is_complete);
        let recorded_first = self.record_first(applied, &delivery.record_first).await?;
        let applied = recorded_first.as_ref().unwrap_or(applied);
        let conflicts = ConflictCheck::new(&self.spoke, owner.manager(), manifests, &uids);
        let pass = Pass {
            agent: self,
            key,
            owner: &owner,
            reported: reported_manifests(&current),
            is_complete,
            verdict,
            has_executor: work.spec.executor.is_some(),
            checked,
            conflicts: &conflicts,
            recorded: &uids,
        };
        let written = Notify::new();
        let write = async {
            let outcomes = pass.run(manifests, &delivery.waves).await;
            written.notify_one();
            outcomes
        };
        let revoke = async {
            let _ = tokio::time::timeout(GRANTED_WITHIN, written.notified()).await;
            self.prune(delivery.revocations, &owner, dropped).await
        };
        let prune = self.prune(delivery.prunes, &owner, dropped);
        let (outcomes, mut still_present, revoked) = futures::join!(write, prune, revoke);
        still_present.extend(revoked);
        if !delivery.grant_revocations.is_empty() {
            let grants = delivery.grant_revocations;
            let left: Vec<_> = records_of(&still_present).chain(&grants).cloned().collect();
            let records = records_after(recorded(applied), &outcomes, manifests, &left);
            still_present.extend(match self.patch_applied_status(applied, &records).await {
                Ok(()) => self.prune(grants, &owner, dropped).await,
                Err(error) => not_revoked(grants, error),
            });
        }
        self.conclude(work, applied, judgement, &current, outcomes, still_present)
            .await
    }

    /// Records and reports the outcome of a delivery. Returns when the work is delivered again.
    async fn conclude(
        &self,
        work: &ManifestWork,
        applied: &AppliedManifestWork,
        judgement: &Judgement,
        current: &ManifestWorkStatus,
        outcomes: Vec<ManifestOutcome>,
        still_present: Vec<StillPresent>,
    ) -> Result<Next, Error> {
        let (manifests, verdict) = (&judgement.manifests, &judgement.verdict);
        let (name, generation, now) = (work.name_any(), work.metadata.generation, Timestamp::now());
        let left: Vec<AppliedResource> = records_of(&still_present).cloned().collect();
        let waits_for: HashSet<_> = outcomes
            .iter()
            .filter_map(|outcome| outcome.waits_for.clone())
            .collect();
        self.states.with(&name, |state| state.waits_for = waits_for);
        // A watch shows the end of terminating objects.
        self.watch_work(&name, manifests, &left).await;

        let failed = outcomes.iter().any(|outcome| outcome.failed);
        let present = outcomes.iter().filter(|outcome| outcome.recorded.is_some());
        let targets = present.filter_map(|outcome| manifests.get(outcome.ordinal)?.target.as_ref().ok());
        let unwatched = self
            .watches
            .unwatched(targets.map(|target| (&target.kind.resource, target.full_name())));
        let records = records_after(recorded(applied), &outcomes, manifests, &left);
        let reports: Vec<ManifestReport> = outcomes.into_iter().map(|outcome| outcome.report).collect();
        let rest_size = stored_size(&work.metadata) + stored_size(&work.spec);
        let refusal = verdict.refusal.as_deref();
        let mut wanted = status::work_status(current, &reports, refusal, generation, now, rest_size);
        let mut described: Vec<String> = still_present
            .iter()
            .map(|(record, outcome)| describe_still_present(record, outcome.as_ref().err()))
            .collect();
        described.sort();
        set_pruned(&mut wanted.conditions, &described, generation, now);
        set_watched(
            &mut wanted.conditions,
            &unwatched,
            self.watches.poll_every(),
            generation,
            now,
        );
        // Write the record before the status: after a crash the next agent process must know what was applied. A failed record
        // write does not suppress the status.
        let recorded = self.patch_applied_status(applied, &records).await;
        recorded.and(self.write_status(work, &wanted).await)?;
        if status::is_resumed(current, &wanted) {
            self.queue.add(Key::work(&name));
        }
        still_present
            .into_iter()
            .try_for_each(|(_, outcome)| outcome.map(drop))?;
        let unfinished = Unfinished {
            still_present: !left.is_empty(),
            recheck_after: self.gate.recheck_after(work.spec.executor.as_ref(), verdict),
            failed,
            unsettled: verdict.unsettled,
        };
        Ok(unfinished.next())
    }

    /// Resolves every kind that a work names, each once.
    pub async fn served_kinds(&self, work: &ManifestWork) -> ServedKinds {
        let waits_for_kind = self.states.with(&work.name_any(), |state| {
            state.waits_for.contains(&super::model::Prerequisite::Kind)
        });
        if waits_for_kind {
            self.mapper.expect_new_kinds();
        }
        let manifests = work.spec.workload.manifests.iter();
        let wanted: HashSet<GroupVersionKind> = manifests
            .filter_map(|manifest| plan::gvk(&manifest.0))
            .filter(|gvk| plan::check_addressable(gvk).is_ok())
            .collect();
        stream::iter(wanted)
            .map(|gvk| async move {
                let found = self.mapper.find(&self.spoke, &gvk).await;
                (gvk, found.map_err(|error| error.to_string()))
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await
    }
}

/// Why no AppliedManifestWork can record a work of this name, if none can.
fn why_too_long(work: &str) -> Option<String> {
    (work.len() > MANIFEST_WORK_NAME_LIMIT).then(|| {
        format!(
            "its name has {} characters, and the AppliedManifestWork that records it has room for \
             {MANIFEST_WORK_NAME_LIMIT}: give it a shorter one",
            work.len()
        )
    })
}

fn records_of(still_present: &[StillPresent]) -> impl Iterator<Item = &AppliedResource> {
    still_present.iter().map(|(record, _)| record)
}

/// Grants that have to wait, as the record could not be written. The error is reported once.
fn not_revoked(grants: Vec<AppliedResource>, error: Error) -> Vec<StillPresent> {
    let mut still_present: Vec<StillPresent> = grants
        .into_iter()
        .map(|grant| (grant, Ok(Deletion::Pending)))
        .collect();
    if let Some((_, outcome)) = still_present.last_mut() {
        *outcome = Err(error);
    }
    still_present
}
