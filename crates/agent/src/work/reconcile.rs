//! One look at one work: what it needs is applied, what it dropped is pruned, what happened is reported.

use std::collections::HashSet;

use futures::{StreamExt, TryFutureExt, stream};
use jiff::Timestamp;
use kube::{
    Api, Resource as _, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::{GroupVersionKind, ObjectMeta, PartialObjectMeta},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use writ_api::work::{
    APPLIED_MANIFEST_WORK_FINALIZER, AppliedManifestWork, AppliedManifestWorkSpec, AppliedManifestWorkStatus,
    AppliedResource, MANIFEST_WORK_FINALIZER, ManifestWork, ManifestWorkStatus,
};
use writ_runtime::{
    Error,
    apply::replacement,
    condition::{self, Wanted},
    error::Context as _,
    queue::Next,
};

use super::{
    Agent, Key,
    apply::Owner,
    delete::{Gone, delete},
    pass::{CONCURRENCY, Done, Pass, Wait, reported},
    plan::{self, Item, Kinds},
    status::{self, Report},
};

impl Agent {
    /// Looks at one work; returns when to look again.
    pub(super) async fn reconcile_work(&self, name: &str) -> Result<Next, Error> {
        let key = Key::work(name);
        let Some(work) = self.works.get(name)? else {
            self.forget(&key);
            return Ok(Next::Wait);
        };
        if work.metadata.deletion_timestamp.is_some() {
            self.forget(&key);
            return self.finalize(&work).await;
        }
        if let Some((problem, reported)) = self.broken(name) {
            self.forget(&key);
            if reported.is_none() || reported != work.metadata.generation {
                self.report_broken(&work, &problem).await?;
            }
            return Ok(Next::Wait);
        }
        let (work, applied) = futures::try_join!(self.ensure_finalizer(work), self.ensure_applied(name))?;
        let applied = self.refresh_applied(applied, &work).await?;
        self.deliver(&key, &work, &applied).await
    }

    async fn deliver(
        &self,
        key: &Key,
        work: &ManifestWork,
        applied: &AppliedManifestWork,
    ) -> Result<Next, Error> {
        let owner = Owner::from(applied);
        let kinds = self.kinds(work).await;
        let items = plan::items(&work.spec, &kinds);
        self.declare_interest(key, &items);
        let current = work.status.clone().unwrap_or_default();
        // The time of the revision at hand, or of a later one.
        let since = self.works.since(&work.name_any()).unwrap_or_else(Instant::now);
        let executor = work.spec.executor.as_ref();
        let verdict = self.gate.check(key, executor, &items, since).await?;
        let complete = condition::is_true(&current.conditions, status::COMPLETE);
        let pass = Pass {
            agent: self,
            key,
            owner: &owner,
            reported: reported(&current),
            complete,
            verdict: &verdict,
        };
        let done = pass.run(&items).await;

        let waits: HashSet<Wait> = done.iter().filter_map(|done| done.wait.clone()).collect();
        self.waits(key, waits);
        self.declare_interest(key, &items);

        let before = applied
            .status
            .as_ref()
            .map(|status| status.applied_resources.clone())
            .unwrap_or_default();
        let (pending, pruned) = self.prune(&before, &items, &owner).await;
        let failed = done.iter().any(|done| done.failed);
        let recorded = Self::applied_resources(&before, &done, &items, &pending);
        let reports: Vec<Report> = done.into_iter().map(|done| done.report).collect();
        let wanted = status::status(
            &current,
            &reports,
            verdict.refusal.as_deref(),
            work.metadata.generation,
            Timestamp::now(),
        );
        let (recorded, reported) = futures::join!(
            self.patch_applied_status(applied, &recorded),
            self.write_status(work, &wanted)
        );
        recorded.and(reported).and(pruned)?;
        if !pending.is_empty() {
            return Ok(Next::Retry);
        }
        if verdict.refusal.is_some() {
            let recheck = self.gate.recheck(work.spec.executor.as_ref(), &verdict);
            return Ok(recheck.map_or(Next::Wait, Next::After));
        }
        Ok(if failed { Next::Retry } else { Next::Wait })
    }

    /// A work that cannot be understood: what was applied stays as it is, and the work says why.
    async fn report_broken(&self, work: &ManifestWork, problem: &str) -> Result<(), Error> {
        let (name, generation) = (work.name_any(), work.metadata.generation);
        let mut conditions = work.status.clone().unwrap_or_default().conditions;
        let wanted = Wanted::new(
            status::APPLIED,
            false,
            "AppliedManifestWorkFailed",
            format!("Failed to apply manifest work: this agent cannot understand it: {problem}"),
        );
        condition::set(&mut conditions, &wanted, generation, Timestamp::now());
        let body = json!({"metadata": {"uid": work.uid()}, "status": {"conditions": conditions}});
        let api: Api<PartialObjectMeta<ManifestWork>> =
            Api::namespaced(self.hub.clone(), &self.options.cluster_name);
        api.patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report that ManifestWork {name} cannot be understood"))?;
        self.reported_broken(&name, generation);
        Ok(())
    }

    async fn ensure_finalizer(&self, mut work: ManifestWork) -> Result<ManifestWork, Error> {
        if work.finalizers().iter().any(|f| f == MANIFEST_WORK_FINALIZER) {
            return Ok(work);
        }
        let mut finalizers = work.finalizers().to_vec();
        finalizers.push(MANIFEST_WORK_FINALIZER.into());
        let patch = json!({"metadata": {
            "uid": work.uid(),
            "resourceVersion": work.resource_version(),
            "finalizers": finalizers,
        }});
        let name = work.name_any();
        let patched = self
            .hub_works()
            .patch_metadata(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&patch))
            .await
            .context(|| format!("add the finalizer to ManifestWork {name}"))?;
        // Nothing else changed since: the patch named the version.
        work.metadata = patched.metadata;
        work.metadata.managed_fields = None;
        self.works.put(&work)?;
        Ok(work)
    }

    async fn ensure_applied(&self, work: &str) -> Result<AppliedManifestWork, Error> {
        let name = self.applied_name(work);
        if let Some(applied) = self.applied.get(&name)? {
            return Ok(applied);
        }
        let labels = self
            .works
            .get(work)?
            .and_then(|work| work.metadata.labels)
            .unwrap_or_default();
        let mut wanted = AppliedManifestWork::new(
            &name,
            AppliedManifestWorkSpec {
                hub_hash: self.hub_hash.clone(),
                agent_id: self.id.clone(),
                manifest_work_name: work.into(),
            },
        );
        wanted.metadata.labels = (!labels.is_empty()).then_some(labels);
        wanted.metadata.finalizers = Some(vec![APPLIED_MANIFEST_WORK_FINALIZER.into()]);
        let params = PostParams {
            field_manager: Some(crate::MANAGER.into()),
            ..PostParams::default()
        };
        let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
        let mut created = match api.create(&params, &wanted).await {
            Err(kube::Error::Api(status)) if status.code == 409 => api.get(&name).await,
            other => other,
        }
        .context(|| format!("create AppliedManifestWork {name}"))?;
        created.meta_mut().managed_fields = None;
        self.applied.put(&created)?;
        Ok(created)
    }

    /// Brings labels, spec and finalizer of the AppliedManifestWork in line with the work.
    async fn refresh_applied(
        &self,
        applied: AppliedManifestWork,
        work: &ManifestWork,
    ) -> Result<AppliedManifestWork, Error> {
        let name = applied.name_any();
        if applied.metadata.deletion_timestamp.is_some() {
            return Err(Error::Invalid(format!(
                "AppliedManifestWork {name} is being deleted; it is made again when it is gone"
            )));
        }
        let mut patch = serde_json::Map::new();
        let wanted = AppliedManifestWorkSpec {
            hub_hash: self.hub_hash.clone(),
            agent_id: self.id.clone(),
            manifest_work_name: work.name_any(),
        };
        if applied.spec != wanted {
            patch.insert("spec".into(), json!(wanted));
        }
        let mut metadata = serde_json::Map::new();
        if !applied
            .finalizers()
            .iter()
            .any(|f| f == APPLIED_MANIFEST_WORK_FINALIZER)
        {
            let mut finalizers = applied.finalizers().to_vec();
            finalizers.push(APPLIED_MANIFEST_WORK_FINALIZER.into());
            metadata.insert("finalizers".into(), json!(finalizers));
        }
        let labels = replacement(&json!(applied.labels()), &json!(work.labels()));
        if let Some(labels) = labels {
            metadata.insert("labels".into(), labels);
        }
        if !metadata.is_empty() {
            metadata.insert("resourceVersion".into(), json!(applied.resource_version()));
            patch.insert("metadata".into(), Value::Object(metadata));
        }
        if patch.is_empty() {
            return Ok(applied);
        }
        let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
        let mut patched = api
            .patch(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&patch))
            .await
            .context(|| format!("change AppliedManifestWork {name}"))?;
        patched.meta_mut().managed_fields = None;
        self.applied.put(&patched)?;
        Ok(patched)
    }

    /// Asks once for every kind that the work names.
    async fn kinds(&self, work: &ManifestWork) -> Kinds {
        let wanted: HashSet<GroupVersionKind> = work
            .spec
            .workload
            .manifests
            .iter()
            .filter_map(|manifest| plan::gvk(&manifest.0))
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

    async fn prune(
        &self,
        before: &[AppliedResource],
        items: &[Item],
        owner: &Owner,
    ) -> (Vec<AppliedResource>, Result<(), Error>) {
        let dropped = plan::prune(before, items);
        let outcomes: Vec<_> = stream::iter(dropped)
            .map(|resource| async move {
                let outcome = delete(&self.spoke, &self.mapper, &resource, owner).await;
                (resource, outcome)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut pending = Vec::new();
        let mut failure = Ok(());
        for (resource, outcome) in outcomes {
            match outcome {
                Ok(Gone::Yes) => {}
                Ok(Gone::Pending) => pending.push(resource),
                Err(error) => {
                    pending.push(resource);
                    failure = Err(error);
                }
            }
        }
        (pending, failure)
    }

    /// What the AppliedManifestWork records.
    fn applied_resources(
        before: &[AppliedResource],
        done: &[Done],
        items: &[Item],
        pending: &[AppliedResource],
    ) -> AppliedManifestWorkStatus {
        let mut resources: Vec<AppliedResource> =
            done.iter().filter_map(|done| done.applied.clone()).collect();
        // What a manifest names stays recorded, even while it cannot be written.
        let dropped = plan::prune(before, items);
        let dropped: HashSet<_> = dropped.iter().map(named).collect();
        let known: HashSet<_> = resources.iter().map(named).collect();
        let kept: Vec<AppliedResource> = before
            .iter()
            .filter(|old| !dropped.contains(&named(old)) && !known.contains(&named(old)))
            .cloned()
            .collect();
        resources.extend(kept);
        resources.extend(pending.iter().cloned());
        resources.sort();
        resources.dedup();
        AppliedManifestWorkStatus {
            applied_resources: resources,
            eviction_start_time: None,
        }
    }

    /// Writes the status of an AppliedManifestWork, if it differs.
    pub(super) async fn patch_applied_status(
        &self,
        applied: &AppliedManifestWork,
        wanted: &AppliedManifestWorkStatus,
    ) -> Result<(), Error> {
        let have = json!(applied.status.clone().unwrap_or_default());
        let Some(patch) = replacement(&have, &json!(wanted)) else {
            return Ok(());
        };
        let name = applied.name_any();
        let api: Api<PartialObjectMeta<AppliedManifestWork>> = Api::all(self.spoke.clone());
        let body = json!({"metadata": {"uid": applied.uid()}, "status": patch});
        let patched = api
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report the status of AppliedManifestWork {name}"))?;
        if unchanged(&patched.metadata, &applied.metadata) {
            let mut applied = applied.clone();
            applied.metadata = patched.metadata;
            applied.metadata.managed_fields = None;
            applied.status = Some(wanted.clone());
            self.applied.put(&applied)?;
        }
        Ok(())
    }

    /// Writes the status of a work, if it differs.
    pub(super) async fn write_status(
        &self,
        work: &ManifestWork,
        wanted: &ManifestWorkStatus,
    ) -> Result<(), Error> {
        let have = json!(work.status.clone().unwrap_or_default());
        let Some(patch) = replacement(&have, &json!(wanted)) else {
            return Ok(());
        };
        let name = work.name_any();
        let body = json!({"metadata": {"uid": work.uid()}, "status": patch});
        let api: Api<PartialObjectMeta<ManifestWork>> =
            Api::namespaced(self.hub.clone(), &self.options.cluster_name);
        let patched = api
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report the status of ManifestWork {name}"))?;
        if unchanged(&patched.metadata, &work.metadata) {
            let mut work = work.clone();
            work.metadata = patched.metadata;
            work.metadata.managed_fields = None;
            work.status = Some(wanted.clone());
            self.works.put(&work)?;
        }
        Ok(())
    }
}

/// Whether a status was written to the very object that it is about. If somebody was faster, only the watch may tell:
/// kept under its new version, the change would look like one that was seen already.
fn unchanged(now: &ObjectMeta, then: &ObjectMeta) -> bool {
    now.generation.is_some()
        && now.generation == then.generation
        && now.labels == then.labels
        && now.finalizers == then.finalizers
        && now.deletion_timestamp == then.deletion_timestamp
}

/// What names an object; versions don't matter.
fn named(resource: &AppliedResource) -> (&str, &str, &str, &str) {
    (
        &resource.group,
        &resource.resource,
        &resource.namespace,
        &resource.name,
    )
}
