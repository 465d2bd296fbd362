//! The life of AppliedManifestWorks: finalized when their work is deleted, evicted when their work is gone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::atomic::Ordering,
    time::Duration,
};

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
    ManifestWork, UpdateStrategyType,
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
    error::Context as _,
    queue::Next,
    write,
};

use super::{
    Agent, Key,
    apply::Owner,
    config::{Config, Identity, owned},
    delete::{Claim, Gone, delete},
    left,
    objects::Own,
    pass::CONCURRENCY,
    plan::{self, Target},
    records::{key, named, recorded},
    status::{APPLIED, DELETING},
    strangers::refuses,
};

/// A grace period of so many seconds or more means: never evict.
const FOR_EVER: u64 = 100 * 365 * 24 * 60 * 60;

impl Agent {
    /// A work is being deleted: its objects go first, then its AppliedManifestWork, then its finalizer. Objects
    /// that are known to be its own are not kept waiting for the AppliedManifestWork to say so.
    pub(super) async fn finalize(
        &self,
        work: &ManifestWork,
        applied: Option<AppliedManifestWork>,
        known: &BTreeMap<AppliedResource, Own>,
    ) -> Result<Next, Error> {
        let name = work.name_any();
        let finalizers = work.finalizers();
        if !finalizers.iter().any(|f| f == MANIFEST_WORK_FINALIZER) {
            return Ok(Next::Wait);
        }
        if !self.applied_listed.load(Ordering::SeqCst) {
            // Nobody can tell yet whether something was applied; the end of the list wakes this work.
            return Ok(Next::Wait);
        }
        if let Some(applied) = applied {
            let mut stuck = None;
            let mut left = None;
            if applied.metadata.deletion_timestamp.is_none() {
                let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
                let (name, uid) = (applied.name_any(), applied.uid());
                // What revokes goes first, and nothing competes with it.
                let mut failed = self.let_go(work, &applied, known).await;
                if failed.is_empty() {
                    write::delete(&api, &name, uid.as_deref()).await?;
                } else {
                    failed.sort_by(|(one, _), (other, _)| one.cmp(other));
                    let words = failed
                        .iter()
                        .map(|(resource, error)| left::words(resource, Some(error)));
                    left = Some(words.collect());
                    stuck = failed.pop().map(|(_, error)| error);
                }
            }
            let mut status = self.unseen.status(work).last;
            let deleting = Wanted::new(DELETING, true, "WorkDeleting", "ManifestWork is being deleted");
            let (generation, now) = (work.metadata.generation, Timestamp::now());
            condition::set(&mut status.conditions, &deleting, generation, now);
            if let Some(left) = left.or_else(|| self.left.of(&name)) {
                left::tell(&mut status.conditions, &left, generation, now);
            }
            self.write_status(work, &status).await?;
            return stuck.map_or(Ok(Next::Wait), Err);
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

    /// Deletes what is known to be the work's, and takes its reference off what stays: before the AppliedManifestWork is
    /// deleted, because only the work says what stays, and an agent that comes after this one may not see it any more.
    /// Returns what keeps its reference.
    async fn let_go(
        &self,
        work: &ManifestWork,
        applied: &AppliedManifestWork,
        known: &BTreeMap<AppliedResource, Own>,
    ) -> Vec<(AppliedResource, Error)> {
        let owner = Owner::from(applied);
        let parting = self.parting(work, recorded(applied)).await;
        let leaves = !parting.left.is_empty();
        let going = recorded(applied)
            .iter()
            .filter(|resource| !parting.left.contains(*resource))
            .filter_map(|resource| match known.get(resource) {
                Some(own) => Some((resource, Claim::Own(own))),
                // One that cannot be left behind must not keep the others.
                None => leaves.then(|| (resource, parting.claim(work, resource))),
            });
        let staying = parting.left.iter().map(|resource| (resource, Claim::Left));
        let ends: Vec<_> = going
            .chain(staying)
            .map(|(resource, claim)| {
                let owner = &owner;
                async move { (resource, delete(self, resource, owner, claim).await) }
            })
            .collect();
        let outcomes: Vec<_> = stream::iter(ends).buffer_unordered(CONCURRENCY).collect().await;
        // What became of the others is asked again when the AppliedManifestWork goes.
        let stuck = outcomes
            .into_iter()
            .filter(|(resource, _)| parting.left.contains(*resource));
        stuck
            .filter_map(|(resource, outcome)| Some((resource.clone(), outcome.err()?)))
            .collect()
    }

    /// What a work that goes says of the recorded objects. What it has dropped goes, whatever it says of what it delivers.
    async fn parting(&self, work: &ManifestWork, recorded: &[AppliedResource]) -> Parting {
        let items = plan::items(&work.spec, &self.kinds(work).await);
        let targets: HashMap<_, &Target> = items
            .iter()
            .filter_map(|item| item.target.as_ref().ok())
            .map(|target| (key(target), target))
            .collect();
        let mut parting = Parting {
            settled: is_settled(work),
            ..Parting::default()
        };
        for resource in recorded {
            let Some(target) = targets.get(&named(resource)) else {
                continue;
            };
            if stays(work, resource) {
                parting.left.insert(resource.clone());
            } else if refuses(target) {
                parting.guarded.insert(resource.clone());
            }
        }
        parting
    }

    /// Looks at one AppliedManifestWork of this agent.
    pub(super) async fn reconcile_applied(&self, name: &str) -> Result<Next, Error> {
        let key = Key::applied(name);
        let Some(applied) = self.applied.get(name)? else {
            self.forget(&key);
            return Ok(Next::Wait);
        };
        // One of a work of ours is ours, whoever made it: an agent that is called otherwise now comes back to it.
        let of_ours =
            applied.spec.hub_hash == self.hub_hash && self.works.contains(&applied.spec.manifest_work_name);
        if applied.spec.agent_id != self.id && !of_ours {
            return Ok(Next::Wait);
        }
        if applied.metadata.deletion_timestamp.is_some() {
            return self.finalize_applied(&key, &applied).await;
        }
        self.evict(&key, &applied).await
    }

    async fn finalize_applied(&self, key: &Key, applied: &AppliedManifestWork) -> Result<Next, Error> {
        let owner = Owner::from(applied);
        let status = applied.status.clone().unwrap_or_default();
        self.await_objects(key, &status.applied_resources).await;
        let ours = applied.spec.hub_hash == self.hub_hash;
        let work = self.works.get(&applied.spec.manifest_work_name)?.filter(|_| ours);
        let parting = match &work {
            Some(work) => Some((work, self.parting(work, &status.applied_resources).await)),
            None => None,
        };
        let deletions: Vec<_> = status
            .applied_resources
            .iter()
            .map(|resource| {
                let said = parting.as_ref();
                let claim = said.map_or(Claim::Reference, |(work, said)| said.claim(work, resource));
                let owner = &owner;
                async move { (resource, delete(self, resource, owner, claim).await) }
            })
            .collect();
        let outcomes: Vec<_> = stream::iter(deletions)
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut left = status.clone();
        left.applied_resources.clear();
        let mut told = Vec::new();
        let mut failure = None;
        for (resource, outcome) in outcomes {
            if matches!(outcome, Ok(Gone::Yes)) {
                continue;
            }
            left.applied_resources.push(resource.clone());
            told.push(left::words(resource, outcome.as_ref().err()));
            failure = failure.or(outcome.err());
        }
        told.sort();
        if let Some(work) = work.filter(|work| self.left.set(&work.name_any(), told)) {
            self.queue.add(Key::work(&work.name_any()));
        }
        if left.applied_resources.is_empty() {
            return self.release(key, applied).await;
        }
        left.applied_resources.sort();
        self.patch_applied_status(applied, &left).await?;
        failure.map_or_else(|| Ok(Next::Retry), Err)
    }

    /// Watches the objects whose end is waited for.
    async fn await_objects(&self, key: &Key, resources: &[AppliedResource]) {
        let wanted = self.served(resources).await;
        if self.objects.interest(key, &wanted, &[]) {
            self.watches.refresh();
        }
    }

    async fn release(&self, key: &Key, applied: &AppliedManifestWork) -> Result<Next, Error> {
        let name = applied.name_any();
        let kept: Vec<&String> = applied
            .finalizers()
            .iter()
            .filter(|f| *f != APPLIED_MANIFEST_WORK_FINALIZER)
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
        self.forget(key);
        Ok(Next::Wait)
    }

    /// An AppliedManifestWork without a work on the hub is deleted after the grace period.
    async fn evict(&self, key: &Key, applied: &AppliedManifestWork) -> Result<Next, Error> {
        if !self.hub_listed() {
            return Ok(Next::Wait);
        }
        let work = &applied.spec.manifest_work_name;
        let mut status = applied.status.clone().unwrap_or_default();
        let managed = applied.spec.hub_hash == self.hub_hash && self.works.contains(work);
        if managed {
            if status.eviction_start_time.take().is_some() {
                self.patch_applied_status(applied, &status).await?;
            }
            return Ok(Next::Wait);
        }
        let grace = self.options.work.eviction_grace_period;
        if grace.as_secs() >= FOR_EVER {
            return Ok(Next::Wait);
        }
        let now = Timestamp::now();
        let Some(Time(start)) = status.eviction_start_time else {
            status.eviction_start_time = Some(Time(whole_seconds(now)));
            self.patch_applied_status(applied, &status).await?;
            return Ok(Next::After(grace));
        };
        let waited = Duration::try_from(now.duration_since(start)).unwrap_or_default();
        if waited < grace {
            return Ok(Next::After(grace.saturating_sub(waited)));
        }
        tracing::info!(name = %applied.name_any(), "the work is gone from the hub, its objects are deleted");
        let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
        write::delete(&api, &applied.name_any(), applied.uid().as_deref()).await?;
        self.forget(key);
        Ok(Next::Wait)
    }
}

/// What a work that goes says of what it delivers.
#[derive(Default)]
struct Parting {
    /// What it does not take with it.
    left: BTreeSet<AppliedResource>,
    /// What it guards against strangers.
    guarded: BTreeSet<AppliedResource>,
    /// Whether what it says was allowed.
    settled: bool,
}

impl Parting {
    fn claim(&self, work: &ManifestWork, resource: &AppliedResource) -> Claim<'static> {
        if self.left.contains(resource) {
            Claim::Left
        } else if !self.settled {
            // An executor that was never asked about the deletion of an object does not get it deleted.
            Claim::Reference
        } else if self.guarded.contains(resource) {
            Claim::Guarded
        } else if stays(work, resource) {
            // It was dropped, and nobody can tell whether it stayed when it was delivered.
            Claim::Reference
        } else {
            Claim::Written
        }
    }
}

/// Whether the last revision of a work that is being deleted was written: what an executor is refused says nothing about
/// what is the work's. The deletion itself counts as a change.
fn is_settled(work: &ManifestWork) -> bool {
    let conditions = work.status.as_ref().map(|status| status.conditions.as_slice());
    let applied = condition::find(conditions.unwrap_or_default(), APPLIED);
    let written = applied.is_some_and(|applied| {
        let (seen, now) = (applied.observed_generation, work.metadata.generation);
        applied.status == "True" && seen.zip(now).is_some_and(|(seen, now)| seen + 1 >= now)
    });
    work.spec.executor.is_none() || written
}

/// Whether a work only reads an object, or leaves it behind, should it deliver it.
fn stays(work: &ManifestWork, resource: &AppliedResource) -> bool {
    let identity = Identity {
        group: &resource.group,
        resource: &resource.resource,
        namespace: &resource.namespace,
        name: &resource.name,
    };
    let strategy = Config::of(&work.spec.manifest_configs, identity).strategy.type_;
    strategy == UpdateStrategyType::ReadOnly || !owned(work.spec.delete_option.as_ref(), identity)
}

/// The API keeps whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_zoned(TimeZone::UTC)
        .timestamp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_says_what_is_the_works() {
        let executor =
            json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "a"}}});
        for (what, executor, status, seen, settled) in [
            ("applied, then deleted", Some(&executor), "True", 2, true),
            ("changed and deleted, unseen", Some(&executor), "True", 1, false),
            ("refused", Some(&executor), "False", 2, false),
            ("refused, but nobody was asked", None, "False", 2, true),
        ] {
            let work: ManifestWork = serde_json::from_value(json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": "w", "generation": 3},
                "spec": {"executor": executor, "workload": {"manifests": []}},
                "status": {"conditions": [{"type": "Applied", "status": status, "observedGeneration": seen,
                    "reason": "R", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
            }))
            .unwrap();
            assert_eq!(is_settled(&work), settled, "{what}");
        }
    }
}
