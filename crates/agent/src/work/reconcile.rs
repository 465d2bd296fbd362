//! One look at one work: what it needs is applied, what it dropped is pruned, what happened is reported.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryFutureExt, stream};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{GroupVersionKind, PartialObjectMeta},
};
use serde_json::json;
use tokio::{sync::Notify, time::Instant};
use writ_api::{
    work::{
        AppliedManifestWork, AppliedResource, MANIFEST_WORK_NAME_LIMIT, ManifestWork, ManifestWorkStatus,
    },
    writ::NamespaceGrant,
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
    error::Context as _,
    queue::Next,
    write::replacement,
};

use super::{
    Agent, Key, RBAC_GROUP,
    apply::Owner,
    cache::version,
    delete::{Claim, Gone, delete},
    executor::{LISTED_WITHIN, Verdict},
    left,
    objects::Own,
    pass::{CONCURRENCY, Done, Looked, Pass, Wait, reported},
    plan::{self, Item, Kinds},
    records::{Recorded, by_name, recorded, unchanged},
    room::stored,
    status::{self, Report},
    strangers::{Strangers, refuses},
    watch::blind::{self, Blind},
};

/// How long what is taken away waits for what is granted by the same change.
const GRANTED_WITHIN: Duration = Duration::from_secs(1);

/// An object that is still there, though it is to go.
type Going = (AppliedResource, Result<Gone, Error>);

/// What was found out about a work before anything was written.
struct Judged {
    items: Arc<[Item]>,
    verdict: Verdict,
    looked: Looked,
    /// Those of the objects that the work dropped that are known to be its own.
    dropped: BTreeMap<AppliedResource, Own>,
}

impl Agent {
    /// Looks at one work; returns when to look again.
    pub(super) async fn reconcile_work(&self, name: &str) -> Result<Next, Error> {
        let key = Key::work(name);
        let Some((work, problem)) = self.works.get_with(name)? else {
            self.forget(&key);
            self.set_broken(name, None);
            self.unseen.forget(name);
            self.left.forget(name);
            return Ok(Next::Wait);
        };
        let applied = self.applied.get(&self.applied_name(name))?;
        if work.metadata.deletion_timestamp.is_some() {
            let known = match &applied {
                Some(applied) => self.own(&key, applied, recorded(applied)).await,
                None => BTreeMap::new(),
            };
            self.forget(&key);
            return self.finalize(&work, applied, &known).await;
        }
        if let Some(problem) = problem.or_else(|| too_long(name)) {
            self.forget(&key);
            if !self.says_broken(name, work.metadata.generation) {
                self.report_broken(&work, &problem).await?;
            }
            return Ok(Next::Wait);
        }
        self.set_broken(name, None);
        let (metadata, applied, judged) = futures::try_join!(
            self.ensure_finalizer(&work),
            self.ensure_applied(name, applied.as_ref()),
            self.judge(&key, &work, applied.as_ref())
        )?;
        let mut work = work;
        if let Some(metadata) = metadata {
            work.metadata = metadata;
            self.works.put(&work)?;
        }
        let applied = self.refresh_applied(applied, &work).await?;
        let Some(judged) = judged else {
            // The gate looks at the work again as soon as it can tell; if that takes long, the work says so.
            return Ok(Next::After(LISTED_WITHIN));
        };
        self.deliver(&key, &work, &applied, judged).await
    }

    /// What a work asks for, and what may be done about it: all that can be found out before anything is written.
    async fn judge(
        &self,
        key: &Key,
        work: &ManifestWork,
        applied: Option<&AppliedManifestWork>,
    ) -> Result<Option<Judged>, Error> {
        let kinds = self.kinds(work).await;
        let items: Arc<[Item]> = plan::items(&work.spec, &kinds).into();
        // What is known of an object is forgotten with the interest in it.
        let going = applied.map_or_else(Vec::new, |applied| plan::prune(recorded(applied), &items));
        let dropped = match applied {
            Some(applied) => self.own(key, applied, &going).await,
            None => BTreeMap::new(),
        };
        self.declare_interest(key, &items, &going).await;
        // The time of the revision at hand, or of a later one.
        let since = self.works.since(&work.name_any()).unwrap_or_else(Instant::now);
        let executor = work.spec.executor.as_ref();
        let Some(verdict) = self.gate.check(key, executor, &items, since).await? else {
            return Ok(None);
        };
        let looked = if executor.is_none() {
            let recorded = by_name(applied.map(recorded).unwrap_or_default());
            self.look_for_strangers(key, &work.name_any(), &items, &recorded)
                .await
        } else {
            Looked::default()
        };
        Ok(Some(Judged {
            items,
            verdict,
            looked,
            dropped,
        }))
    }

    /// Those of a work's objects that are known to be its own.
    async fn own(
        &self,
        key: &Key,
        applied: &AppliedManifestWork,
        resources: &[AppliedResource],
    ) -> BTreeMap<AppliedResource, Own> {
        let owner = applied.uid().unwrap_or_default();
        let mut known = BTreeMap::new();
        for resource in resources {
            let Ok(Some(kind)) = self.recorded_kind(resource).await else {
                continue;
            };
            let name = (resource.namespace.as_str().into(), resource.name.as_str().into());
            let own = self.objects.own(key, &kind.resource, &name, &owner);
            known.extend(own.map(|own| (resource.clone(), own)));
        }
        known
    }

    /// Looks whether objects that were never written here are somebody else's, where the manifest wants to know.
    async fn look_for_strangers(
        &self,
        key: &Key,
        work: &str,
        items: &[Item],
        recorded: &Recorded<'_>,
    ) -> Looked {
        let manager = Owner::manager_of(&self.applied_name(work));
        let strangers = Strangers::new(&self.spoke, manager, items, recorded);
        let new = items.iter().filter_map(|item| {
            let target = item.target.as_ref().ok().filter(|target| refuses(target))?;
            let known = self.objects.get(key, &target.kind.resource, &target.place());
            known.is_none().then_some((item.ordinal, target))
        });
        let looks: Vec<_> = new
            .map(|(ordinal, target)| {
                let strangers = &strangers;
                async move { (ordinal, strangers.none(target).await) }
            })
            .collect();
        stream::iter(looks).buffer_unordered(CONCURRENCY).collect().await
    }

    async fn deliver(
        &self,
        key: &Key,
        work: &ManifestWork,
        applied: &AppliedManifestWork,
        judged: Judged,
    ) -> Result<Next, Error> {
        let owner = Owner::from(applied);
        let Judged {
            items,
            verdict,
            looked,
            dropped,
        } = judged;
        let current = self.unseen.status(work).last;
        let complete = condition::is_true(&current.conditions, status::COMPLETE);
        let written = recorded(applied);
        let by_name = by_name(written);
        // Before anything is made that is not recorded: an agent that ends meanwhile leaves nothing behind that the next one
        // does not know of.
        let ahead = self
            .record_ahead(applied, &items, &verdict, &by_name, complete)
            .await?;
        let applied = ahead.as_ref().unwrap_or(applied);
        let before = recorded(applied);
        let strangers = Strangers::new(&self.spoke, owner.manager(), &items, &by_name);
        let pass = Pass {
            agent: self,
            key,
            owner: &owner,
            reported: reported(&current),
            complete,
            verdict: &verdict,
            for_executor: work.spec.executor.is_some(),
            looked: &looked,
            strangers: &strangers,
            recorded: &by_name,
        };
        // What was taken away goes at once, not after what is new; only what grants rights goes after what grants others,
        // if that does not take long. Grants go last: what they made stays where this work delivers it now, and the record
        // has to say so first.
        let (grants, others): (Vec<_>, Vec<_>) = plan::prune(before, &items)
            .into_iter()
            .partition(|resource| resource.group == NamespaceGrant::group(&()));
        let (rights, others): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|resource| resource.group == RBAC_GROUP);
        let granted = Notify::new();
        let run = async {
            let done = pass.run(&items).await;
            granted.notify_one();
            done
        };
        let revoke = async {
            let _ = tokio::time::timeout(GRANTED_WITHIN, granted.notified()).await;
            self.prune(rights, &owner, &dropped).await
        };
        let (done, mut outcomes, revoked) = futures::join!(run, self.prune(others, &owner, &dropped), revoke);
        outcomes.extend(revoked);
        if !grants.is_empty() {
            let going: Vec<_> = pending(&outcomes).chain(&grants).cloned().collect();
            let recorded = Self::applied_resources(before, &done, &items, &going);
            match self.patch_applied_status(applied, &recorded).await {
                Ok(()) => outcomes.extend(self.prune(grants, &owner, &dropped).await),
                Err(error) => {
                    // They have to wait, and the work says why.
                    outcomes.extend(grants.into_iter().map(|grant| (grant, Ok(Gone::Pending))));
                    if let Some((_, outcome)) = outcomes.last_mut() {
                        *outcome = Err(error);
                    }
                }
            }
        }
        let mut left: Vec<String> = outcomes
            .iter()
            .map(|(resource, outcome)| left::words(resource, outcome.as_ref().err()))
            .collect();
        left.sort();
        let pending: Vec<AppliedResource> = pending(&outcomes).cloned().collect();

        let waits: HashSet<Wait> = done.iter().filter_map(|done| done.wait.clone()).collect();
        self.waits(key, waits);
        // The end of what is on its way out comes by a watch.
        self.declare_interest(key, &items, &pending).await;

        let failed = done.iter().any(|done| done.failed);
        let blind = self.blind(&done, &items);
        let recorded = Self::applied_resources(before, &done, &items, &pending);
        let reports: Vec<Report> = done.into_iter().map(|done| done.report).collect();
        let mut wanted = status::status(
            &current,
            &reports,
            verdict.refusal.as_deref(),
            work.metadata.generation,
            Timestamp::now(),
            stored(&work.metadata) + stored(&work.spec),
        );
        left::tell(
            &mut wanted.conditions,
            &left,
            work.metadata.generation,
            Timestamp::now(),
        );
        blind::tell(
            &mut wanted.conditions,
            &blind,
            self.watches.looks(),
            work.metadata.generation,
            Timestamp::now(),
        );
        // One after the other: what is reported as applied was recorded first, for the agent that comes after this one, and
        // who waits for a revocation asks in this moment and is given room. A record that is refused hides no report.
        let recorded = self.patch_applied_status(applied, &recorded).await;
        recorded.and(self.write_status(work, &wanted).await)?;
        if status::resumes(&current, &wanted) {
            self.queue.add(key.clone());
        }
        outcomes
            .into_iter()
            .try_for_each(|(_, outcome)| outcome.map(drop))?;
        if !pending.is_empty() {
            return Ok(Next::Retry);
        }
        if let Some(delay) = self.gate.recheck(work.spec.executor.as_ref(), &verdict) {
            return Ok(Next::After(delay));
        }
        Ok(if failed || verdict.unsettled {
            Next::Retry
        } else {
            Next::Wait
        })
    }

    /// Of which of the objects that are there changes are not seen.
    fn blind(&self, done: &[Done], items: &[Item]) -> BTreeSet<Blind> {
        let there = done.iter().filter(|done| done.applied.is_some());
        let targets = there.filter_map(|done| items.get(done.ordinal)?.target.as_ref().ok());
        self.watches
            .blind(targets.map(|target| (&target.kind.resource, target.place())))
    }

    /// A work that cannot be understood: what was applied stays as it is, and the work says why.
    async fn report_broken(&self, work: &ManifestWork, problem: &str) -> Result<(), Error> {
        let (name, generation) = (work.name_any(), work.metadata.generation);
        let mut conditions = work.status.clone().unwrap_or_default().conditions;
        let wanted = Wanted::new(
            status::APPLIED,
            false,
            "AppliedManifestWorkFailed",
            format!("Failed to apply manifest work: {problem}"),
        );
        condition::set(&mut conditions, &wanted, generation, Timestamp::now());
        let body = json!({"metadata": {"uid": work.uid()}, "status": {"conditions": conditions}});
        let api: Api<PartialObjectMeta<ManifestWork>> =
            Api::namespaced(self.hub.clone(), &self.options.cluster_name);
        api.patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report that ManifestWork {name} cannot be understood"))?;
        self.set_broken(&name, generation);
        Ok(())
    }

    /// Asks once for every kind that the work names.
    pub(super) async fn kinds(&self, work: &ManifestWork) -> Kinds {
        let wanted: HashSet<GroupVersionKind> = work
            .spec
            .workload
            .manifests
            .iter()
            .filter_map(|manifest| plan::gvk(&manifest.0))
            .filter(|gvk| plan::addressable(gvk).is_ok())
            .collect();
        stream::iter(wanted)
            .map(|gvk| async move {
                let found = self.mapper.find(&gvk).map_err(|error| error.to_string()).await;
                (gvk, found)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await
    }

    /// Takes away what a work has dropped. What is still there is returned, and with it what went wrong.
    async fn prune(
        &self,
        dropped: Vec<AppliedResource>,
        owner: &Owner,
        known: &BTreeMap<AppliedResource, Own>,
    ) -> Vec<Going> {
        stream::iter(dropped)
            .map(|resource| async move {
                let claim = known.get(&resource).map_or(Claim::Reference, Claim::Own);
                let outcome = delete(self, &resource, owner, claim).await;
                (resource, outcome)
            })
            .buffer_unordered(CONCURRENCY)
            .filter(|(_, outcome)| std::future::ready(!matches!(outcome, Ok(Gone::Yes))))
            .collect()
            .await
    }

    /// Writes the status of a work, if it differs.
    pub(super) async fn write_status(
        &self,
        work: &ManifestWork,
        wanted: &ManifestWorkStatus,
    ) -> Result<(), Error> {
        let have = json!(self.unseen.status(work).written);
        let name = work.name_any();
        let Some(patch) = replacement(&have, &json!(wanted)) else {
            self.unseen.settled(&name);
            return Ok(());
        };
        let body = json!({"metadata": {"uid": work.uid()}, "status": patch});
        let api: Api<PartialObjectMeta<ManifestWork>> =
            Api::namespaced(self.hub.clone(), &self.options.cluster_name);
        let patched = api
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .inspect_err(|_| self.unseen.tried(work, wanted))
            .context(|| format!("report the status of ManifestWork {name}"))?;
        if unchanged(&patched.metadata, &work.metadata) {
            let mut work = work.clone();
            work.metadata = patched.metadata;
            work.metadata.managed_fields = None;
            work.status = Some(wanted.clone());
            self.works.put(&work)?;
            self.unseen.forget(&name);
        } else {
            let version = version(patched.metadata.resource_version.as_deref());
            self.unseen.written(work, wanted, version);
        }
        Ok(())
    }
}

/// Why nothing can be recorded about a work of this name, if so.
fn too_long(work: &str) -> Option<String> {
    (work.len() > MANIFEST_WORK_NAME_LIMIT).then(|| {
        format!(
            "its name has {} characters, and the AppliedManifestWork that records it has room for \
             {MANIFEST_WORK_NAME_LIMIT}: give it a shorter one",
            work.len()
        )
    })
}

fn pending(going: &[Going]) -> impl Iterator<Item = &AppliedResource> {
    going.iter().map(|(resource, _)| resource)
}
