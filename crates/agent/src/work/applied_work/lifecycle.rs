//! The life cycle of AppliedManifestWorks: finalized when their work is deleted, evicted when their work is gone.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::work::{
    APPLIED_MANIFEST_WORK_FINALIZER, AppliedManifestWork, AppliedResource, MANIFEST_WORK_FINALIZER,
    ManifestWork,
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
    error::Context as _,
    queue::Next,
    write,
};

use super::{
    claims::FinalClaims,
    eviction::{Eviction, WorkOnHub, plan_eviction},
};
use crate::owner::Owner;
use crate::work::{
    apply::{
        delete::{Claim, Deletion, delete},
        pass::CONCURRENCY,
    },
    model::{Key, OwnedObject},
    plan::{self, records::recorded},
    state::Agent,
    status::{
        DELETING,
        pruning::{describe_still_present, set_pruned},
    },
};

impl Agent {
    /// A work is being deleted: its objects go first, then its AppliedManifestWork, then its finalizer. Objects that are known
    /// to belong to it are deleted at once, not by the finalizer of the AppliedManifestWork.
    pub async fn finalize_work(
        &self,
        work: &ManifestWork,
        applied: Option<AppliedManifestWork>,
        owned: &BTreeMap<AppliedResource, OwnedObject>,
    ) -> Result<Next, Error> {
        let name = work.name_any();
        let finalizers = work.finalizers();
        if !finalizers.iter().any(|f| f == MANIFEST_WORK_FINALIZER) {
            return Ok(Next::Wait);
        }
        if let Some(applied) = applied {
            let mut error = None;
            let mut still_present = None;
            if applied.metadata.deletion_timestamp.is_none() {
                let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
                let (name, uid) = (applied.name_any(), applied.uid());
                // Revocations go first, and compete with nothing.
                let mut failed = self.delete_owned(work, &applied, owned).await;
                if failed.is_empty() {
                    write::delete(&api, &name, uid.as_deref()).await?;
                } else {
                    failed.sort_by(|(one, _), (other, _)| one.cmp(other));
                    let described = failed
                        .iter()
                        .map(|(record, error)| describe_still_present(record, Some(error)));
                    still_present = Some(described.collect());
                    error = failed.pop().map(|(_, error)| error);
                }
            }
            let (mut status, known) = self.states.with(&name, |state| {
                (state.in_flight.latest(work).last, state.still_present.clone())
            });
            let deleting = Wanted::new(DELETING, true, "WorkDeleting", "ManifestWork is being deleted");
            let (generation, now) = (work.metadata.generation, Timestamp::now());
            condition::set(&mut status.conditions, &deleting, generation, now);
            if let Some(still_present) = still_present.or(known) {
                set_pruned(&mut status.conditions, &still_present, generation, now);
            }
            self.write_status(work, &status).await?;
            return error.map_or(Ok(Next::Wait), Err);
        }
        let kept: Vec<&String> = finalizers
            .iter()
            .filter(|f| *f != MANIFEST_WORK_FINALIZER)
            .collect();
        let patch = json!({"metadata": {
            "uid": work.uid(),
            "resourceVersion": work.resource_version(),
            "finalizers": kept,
        }});
        let patched = self
            .hub_works()
            .patch_metadata(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&patch))
            .await;
        match patched {
            Ok(_) => Ok(Next::Wait),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Next::Wait),
            Err(error) => Err(error).context(|| format!("remove the finalizer of ManifestWork {name}")),
        }
    }

    /// Deletes the objects that are known to belong to the work, and removes its owner reference from those that it orphans. That
    /// has to come before the AppliedManifestWork is deleted: only the work says what it orphans, and the next agent process
    /// may not see the work any more. Returns the objects for which that failed.
    async fn delete_owned(
        &self,
        work: &ManifestWork,
        applied: &AppliedManifestWork,
        live_objects: &BTreeMap<AppliedResource, OwnedObject>,
    ) -> Vec<(AppliedResource, Error)> {
        let owner = Owner::from(applied);
        let claims = self.final_claims(work, recorded(applied)).await;
        let has_orphans = !claims.orphaned.is_empty();
        let deleted = recorded(applied)
            .iter()
            .filter(|record| !claims.orphaned.contains(*record))
            .filter_map(|record| match live_objects.get(record) {
                Some(object) => Some((record, Claim::Owned(object))),
                // An object that cannot be orphaned now must not hold up the others.
                None => has_orphans.then(|| (record, claims.claim(work, record))),
            });
        let orphaned = claims.orphaned.iter().map(|record| (record, Claim::Orphaned));
        let deletions: Vec<_> = deleted
            .chain(orphaned)
            .map(|(record, claim)| {
                let owner = &owner;
                async move { (record, delete(self, record, owner, claim).await) }
            })
            .collect();
        let outcomes: Vec<_> = stream::iter(deletions)
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        // The others are deleted again when the AppliedManifestWork is finalized.
        let failed = outcomes
            .into_iter()
            .filter(|(record, _)| claims.orphaned.contains(*record));
        failed
            .filter_map(|(record, outcome)| Some((record.clone(), outcome.err()?)))
            .collect()
    }

    async fn final_claims(&self, work: &ManifestWork, records: &[AppliedResource]) -> FinalClaims {
        let manifests = plan::manifests(&work.spec, &self.served_kinds(work).await);
        FinalClaims::new(work, &manifests, records)
    }

    /// Reconciles one AppliedManifestWork: finalizes or evicts it, if it belongs to this agent.
    pub async fn reconcile_applied(&self, name: &str) -> Result<Next, Error> {
        let key = Key::applied(name);
        let Some(applied) = self.applied(name) else {
            self.stop_delivering(&key);
            return Ok(Next::Wait);
        };
        // That of a work on our hub is ours whatever agent created it: the id of this agent may have changed.
        let is_of_our_work =
            applied.spec.hub_hash == self.hub_hash && self.is_on_hub(&applied.spec.manifest_work_name);
        if applied.spec.agent_id != self.id && !is_of_our_work {
            return Ok(Next::Wait);
        }
        if applied.metadata.deletion_timestamp.is_some() {
            return self.finalize_applied(&key, &applied).await;
        }
        self.evict(&key, &applied).await
    }

    async fn finalize_applied(&self, key: &Key, applied: &AppliedManifestWork) -> Result<Next, Error> {
        let owner = Owner::from(applied);
        let mut status = applied.status.clone().unwrap_or_default();
        let records = std::mem::take(&mut status.applied_resources);
        self.watch_deletions(key, &records).await;
        let is_of_our_hub = applied.spec.hub_hash == self.hub_hash;
        let work = self
            .work(&applied.spec.manifest_work_name)
            .filter(|_| is_of_our_hub);
        let claims = match &work {
            Some(work) => Some((work, self.final_claims(work, &records).await)),
            None => None,
        };
        let deletions: Vec<_> = records
            .iter()
            .map(|record| {
                let claims = claims.as_ref();
                let claim = claims.map_or(Claim::Reference, |(work, claims)| claims.claim(work, record));
                let owner = &owner;
                async move { (record, delete(self, record, owner, claim).await) }
            })
            .collect();
        let outcomes: Vec<_> = stream::iter(deletions)
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut described = Vec::new();
        let mut failure = None;
        for (record, outcome) in outcomes {
            if matches!(outcome, Ok(Deletion::Done)) {
                continue;
            }
            status.applied_resources.push(record.clone());
            described.push(describe_still_present(record, outcome.as_ref().err()));
            failure = failure.or(outcome.err());
        }
        described.sort();
        if let Some(work) = work {
            let name = work.name_any();
            let before = self
                .states
                .with(&name, |state| state.still_present.replace(described.clone()));
            if before != Some(described) {
                self.queue.add(Key::work(&name));
            }
        }
        if status.applied_resources.is_empty() {
            return self.remove_applied_finalizer(key, applied).await;
        }
        status.applied_resources.sort();
        self.patch_applied_status(applied, &status).await?;
        failure.map_or_else(|| Ok(Next::Retry), Err)
    }

    async fn remove_applied_finalizer(
        &self,
        key: &Key,
        applied: &AppliedManifestWork,
    ) -> Result<Next, Error> {
        let name = applied.name_any();
        let kept: Vec<&String> = applied
            .finalizers()
            .iter()
            .filter(|finalizer| *finalizer != APPLIED_MANIFEST_WORK_FINALIZER)
            .collect();
        if kept.len() != applied.finalizers().len() {
            let patch = json!({"metadata": {
                "uid": applied.uid(),
                "resourceVersion": applied.resource_version(),
                "finalizers": kept,
            }});
            let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
            let patched = api
                .patch(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&patch))
                .await;
            match patched {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => {
                    other.context(|| format!("remove the finalizer of AppliedManifestWork {name}"))?;
                }
            }
        }
        self.stop_delivering(key);
        Ok(Next::Wait)
    }

    /// Deletes an AppliedManifestWork whose work is gone from the hub, after the grace period.
    async fn evict(&self, key: &Key, applied: &AppliedManifestWork) -> Result<Next, Error> {
        let is_managed =
            applied.spec.hub_hash == self.hub_hash && self.is_on_hub(&applied.spec.manifest_work_name);
        let work = match (self.works.is_ready(), is_managed) {
            (false, _) => WorkOnHub::NotListed,
            (true, true) => WorkOnHub::Exists,
            (true, false) => WorkOnHub::Gone,
        };
        let mut status = applied.status.clone().unwrap_or_default();
        let began = status.eviction_start_time.as_ref().map(|Time(began)| *began);
        let grace_period = self.options.eviction_grace_period;
        let now = Timestamp::now();
        match plan_eviction(work, began, grace_period, now) {
            Eviction::Keep => Ok(Next::Wait),
            Eviction::CallOff => {
                status.eviction_start_time = None;
                self.patch_applied_status(applied, &status).await?;
                Ok(Next::Wait)
            }
            Eviction::Begin => {
                status.eviction_start_time = Some(Time(whole_seconds(now)));
                self.patch_applied_status(applied, &status).await?;
                Ok(Next::After(grace_period))
            }
            Eviction::Await(rest) => Ok(Next::After(rest)),
            Eviction::Evict => {
                let name = applied.name_any();
                tracing::info!(name, "the work is gone from the hub, its objects are deleted");
                let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
                write::delete(&api, &name, applied.uid().as_deref()).await?;
                self.stop_delivering(key);
                Ok(Next::Wait)
            }
        }
    }
}

/// The API keeps whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_zoned(TimeZone::UTC)
        .timestamp()
}
