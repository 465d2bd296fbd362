//! What must exist before anything is applied: the finalizer on the hub, and the AppliedManifestWork on the managed cluster;
//! and the status of the latter, which records every object.

use kube::{
    Api, Resource as _, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::{ObjectMeta, PartialObjectMeta},
};
use serde_json::{Value, json};
use writ_api::work::{
    APPLIED_MANIFEST_WORK_FINALIZER, AppliedManifestWork, AppliedManifestWorkSpec, AppliedManifestWorkStatus,
    AppliedResource, MANIFEST_WORK_FINALIZER, ManifestWork,
};
use writ_controller::{Error, error::Context as _, write::replacement};

use crate::work::{report::only_status_changed, state::Agent};

impl Agent {
    /// Adds our finalizer to the work. Returns the new metadata, if that was needed.
    pub async fn ensure_finalizer(&self, work: &ManifestWork) -> Result<Option<ObjectMeta>, Error> {
        if work.finalizers().iter().any(|f| f == MANIFEST_WORK_FINALIZER) {
            return Ok(None);
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
        // The patch named the version, so nothing else has changed.
        Ok(Some(ObjectMeta {
            managed_fields: None,
            ..patched.metadata
        }))
    }

    /// Creates the AppliedManifestWork of a work, if it does not exist.
    pub async fn ensure_applied(
        &self,
        work: &str,
        known: Option<&AppliedManifestWork>,
    ) -> Result<AppliedManifestWork, Error> {
        if let Some(applied) = known {
            return Ok(applied.clone());
        }
        let name = self.applied_name(work);
        let labels = self
            .work(work)
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
        self.applied.record(created.clone())?;
        Ok(created)
    }

    /// Brings labels, spec and finalizer of the AppliedManifestWork in line with the work.
    pub async fn refresh_applied(
        &self,
        applied: AppliedManifestWork,
        work: &ManifestWork,
    ) -> Result<AppliedManifestWork, Error> {
        let name = applied.name_any();
        if applied.metadata.deletion_timestamp.is_some() {
            return Err(Error::Busy(format!(
                "AppliedManifestWork {name} is being deleted; it is created again when it is gone"
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
        self.applied.record(patched.clone())?;
        Ok(patched)
    }

    /// Records objects that are about to be written for the first time. Returns the new record, if there are any.
    pub async fn record_first(
        &self,
        applied: &AppliedManifestWork,
        new: &[AppliedResource],
    ) -> Result<Option<AppliedManifestWork>, Error> {
        if new.is_empty() {
            return Ok(None);
        }
        let mut status = applied.status.clone().unwrap_or_default();
        status.applied_resources.extend_from_slice(new);
        status.applied_resources.sort();
        status.applied_resources.dedup();
        self.patch_applied_status(applied, &status).await?;
        Ok(Some(AppliedManifestWork {
            status: Some(status),
            ..applied.clone()
        }))
    }

    /// Writes the status of an AppliedManifestWork, if it differs.
    pub async fn patch_applied_status(
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
        if only_status_changed(&patched.metadata, &applied.metadata) {
            let mut applied = applied.clone();
            applied.metadata = patched.metadata;
            applied.metadata.managed_fields = None;
            applied.status = Some(wanted.clone());
            self.applied.record(applied)?;
        }
        Ok(())
    }
}
