//! One look at one work: what it needs is applied, what it dropped is pruned, what happened is reported.

use std::{collections::HashSet, time::Duration};

use futures::{StreamExt, TryFutureExt, stream};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use writ_api::work::{
    APPLIED_MANIFEST_WORK_FINALIZER, AppliedManifestWork, AppliedManifestWorkSpec, AppliedManifestWorkStatus,
    AppliedResource, MANIFEST_WORK_FINALIZER, ManifestWork, ManifestWorkStatus,
};
use writ_runtime::{Error, apply::replacement, condition, error::Context as _};

use super::{
    Agent, Key,
    apply::Owner,
    delete::{Gone, delete},
    pass::{CONCURRENCY, Done, Pass, Wait},
    plan::{self, Item, Kinds},
    status::{self, Report},
};

impl Agent {
    /// Looks at one work; returns after which delay to look again, if something is still missing.
    pub(super) async fn reconcile_work(&self, name: &str) -> Result<Option<Duration>, Error> {
        let key = Key::work(name);
        let Some(work) = self.works.get(name)? else {
            self.forget(&key);
            return Ok(None);
        };
        if work.metadata.deletion_timestamp.is_some() {
            self.forget(&key);
            return self.finalize(&work).await;
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
    ) -> Result<Option<Duration>, Error> {
        let owner = Owner::from(applied);
        let kinds = self.kinds(work).await;
        let items = plan::items(&work.spec, &kinds);
        self.declare_interest(key, &items);
        let current = work.status.clone().unwrap_or_default();
        let verdict = self.gate.check(key, work.spec.executor.as_ref(), &items).await?;
        let complete = condition::is_true(&current.conditions, status::COMPLETE);
        let pass = Pass {
            agent: self,
            key,
            owner: &owner,
            current: &current,
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
        self.write_applied_status(applied, &before, &done, &items, &pending)
            .await?;
        let reports: Vec<Report> = done.into_iter().map(|done| done.report).collect();
        let wanted = status::status(
            &current,
            &reports,
            verdict.refusal.as_deref(),
            work.metadata.generation,
            Timestamp::now(),
        );
        self.write_status(work, &wanted).await?;
        pruned?;
        if !pending.is_empty() {
            return Ok(Some(self.retry(key)));
        }
        if verdict.refusal.is_some() {
            return Ok(self.gate.recheck(work.spec.executor.as_ref(), &verdict));
        }
        if failed {
            return Ok(Some(self.retry(key)));
        }
        self.succeeded(key);
        // Objects of kinds that came with this very work are watched once their kind is known.
        let to_come = |item: &Item| item.target.as_ref().is_ok_and(|target| target.kind_to_come);
        Ok(items.iter().any(to_come).then_some(Duration::from_millis(100)))
    }

    async fn ensure_finalizer(&self, work: ManifestWork) -> Result<ManifestWork, Error> {
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
        let mut patched = self
            .hub_works()
            .patch(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&patch))
            .await
            .context(|| format!("add the finalizer to ManifestWork {name}"))?;
        patched.meta_mut().managed_fields = None;
        self.works.put(&patched)?;
        Ok(patched)
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

    async fn write_applied_status(
        &self,
        applied: &AppliedManifestWork,
        before: &[AppliedResource],
        done: &[Done],
        items: &[Item],
        pending: &[AppliedResource],
    ) -> Result<(), Error> {
        let mut resources: Vec<AppliedResource> =
            done.iter().filter_map(|done| done.applied.clone()).collect();
        // What a manifest names stays recorded, even while it cannot be written.
        let dropped = plan::prune(before, items);
        for old in before.iter().filter(|old| !dropped.contains(old)) {
            let known = resources.iter().any(|new| {
                (&new.group, &new.resource, &new.namespace, &new.name)
                    == (&old.group, &old.resource, &old.namespace, &old.name)
            });
            if !known {
                resources.push(old.clone());
            }
        }
        resources.extend(pending.iter().cloned());
        resources.sort();
        resources.dedup();
        let wanted = AppliedManifestWorkStatus {
            applied_resources: resources,
            eviction_start_time: None,
        };
        self.patch_applied_status(applied, &wanted).await
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
        let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
        let body = json!({"metadata": {"uid": applied.uid()}, "status": patch});
        let mut patched = api
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report the status of AppliedManifestWork {name}"))?;
        patched.meta_mut().managed_fields = None;
        self.applied.put(&patched)?;
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
        let mut patched = self
            .hub_works()
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report the status of ManifestWork {name}"))?;
        patched.meta_mut().managed_fields = None;
        self.works.put(&patched)?;
        Ok(())
    }
}
