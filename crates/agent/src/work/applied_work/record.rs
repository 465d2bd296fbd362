//! What must be there before anything is applied: the finalizer on the hub, and the record on the managed cluster; and
//! what is written into that record.

use std::collections::{HashMap, HashSet};

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

use super::{
    Agent,
    config::Identity,
    executor::Verdict,
    pass::Done,
    plan::{self, Item, Target},
};

impl Agent {
    /// Puts our finalizer on the work; returns its metadata as they are then, if that was needed.
    pub(super) async fn ensure_finalizer(&self, work: &ManifestWork) -> Result<Option<ObjectMeta>, Error> {
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
        // Nothing else changed since: the patch named the version.
        Ok(Some(ObjectMeta {
            managed_fields: None,
            ..patched.metadata
        }))
    }

    pub(super) async fn ensure_applied(
        &self,
        work: &str,
        known: Option<&AppliedManifestWork>,
    ) -> Result<AppliedManifestWork, Error> {
        if let Some(applied) = known {
            return Ok(applied.clone());
        }
        let name = self.applied_name(work);
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
    pub(super) async fn refresh_applied(
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

    /// Records what is about to be made for the first time, without the uids that it will have; returns the record, if that
    /// was needed.
    pub(super) async fn record_ahead(
        &self,
        applied: &AppliedManifestWork,
        items: &[Item],
        verdict: &Verdict,
        written: &Recorded<'_>,
        complete: bool,
    ) -> Result<Option<AppliedManifestWork>, Error> {
        let allowed = items
            .iter()
            .filter(|item| !complete && verdict.of(item.ordinal).is_none());
        let new: Vec<AppliedResource> = allowed
            .filter_map(|item| item.target.as_ref().ok())
            .filter(|target| target.written() && !written.contains_key(&key(target)))
            .map(|target| target.applied(""))
            .collect();
        if new.is_empty() {
            return Ok(None);
        }
        let mut status = applied.status.clone().unwrap_or_default();
        status.applied_resources.extend(new);
        status.applied_resources.sort();
        status.applied_resources.dedup();
        self.patch_applied_status(applied, &status).await?;
        Ok(Some(AppliedManifestWork {
            status: Some(status),
            ..applied.clone()
        }))
    }

    /// What the AppliedManifestWork records.
    pub(super) fn applied_resources(
        before: &[AppliedResource],
        done: &[Done],
        items: &[Item],
        pending: &[AppliedResource],
    ) -> AppliedManifestWorkStatus {
        // What is only read is not the work's, and a record of it would make it so.
        let written = |done: &Done| {
            let target = items.get(done.ordinal).map(|item| item.target.as_ref());
            target.is_some_and(|target| target.is_ok_and(Target::written))
        };
        let recorded = done.iter().filter(|done| written(done));
        let mut resources: Vec<AppliedResource> = recorded.filter_map(|done| done.applied.clone()).collect();
        // What a manifest names stays recorded, even while it cannot be written.
        let dropped = plan::prune(before, items);
        let dropped: HashSet<_> = dropped.iter().map(named).collect();
        let known: HashSet<_> = done
            .iter()
            .filter_map(|done| done.applied.as_ref())
            .map(named)
            .collect();
        // What was recorded ahead and certainly was not made is not.
        let lacking = done.iter().filter(|done| done.lacking);
        let lacking: HashSet<_> = lacking
            .filter_map(|done| Some(key(items.get(done.ordinal)?.target.as_ref().ok()?)))
            .collect();
        let kept = before.iter().filter(|old| {
            let name = named(old);
            let unmade = old.uid.is_empty() && lacking.contains(&name);
            !unmade && !dropped.contains(&name) && !known.contains(&name)
        });
        resources.extend(kept.cloned());
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
}

/// Whether a status was written to the very object that it is about. If somebody was faster, only the watch may tell:
/// kept under its new version, the change would look like one that was seen already.
pub(super) fn unchanged(now: &ObjectMeta, then: &ObjectMeta) -> bool {
    now.generation.is_some()
        && now.generation == then.generation
        && now.labels == then.labels
        && now.finalizers == then.finalizers
        && now.deletion_timestamp == then.deletion_timestamp
}

/// What a work has applied, as recorded.
pub(super) fn recorded(applied: &AppliedManifestWork) -> &[AppliedResource] {
    let status = applied.status.as_ref();
    status.map_or(&[], |status| &status.applied_resources)
}

/// What names an object; versions don't matter.
pub(super) fn named(resource: &AppliedResource) -> (&str, &str, &str, &str) {
    (
        &resource.group,
        &resource.resource,
        &resource.namespace,
        &resource.name,
    )
}

/// What a work has written, by group, resource, namespace and name: the uids.
pub type Recorded<'a> = HashMap<(&'a str, &'a str, &'a str, &'a str), &'a str>;

/// The objects of a record, ready to be looked up.
pub fn by_name(resources: &[AppliedResource]) -> Recorded<'_> {
    let entries = resources
        .iter()
        .map(|resource| (named(resource), resource.uid.as_str()));
    entries.collect()
}

/// What names the object of a manifest in a record.
pub fn key(target: &Target) -> (&str, &str, &str, &str) {
    let Identity {
        group,
        resource,
        namespace,
        name,
    } = target.identity();
    (group, resource, namespace, name)
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};
    use writ_api::work::ManifestWorkSpec;

    use super::*;
    use crate::work::{mapper::Kind, status::Report};

    /// The manifests `a`, `b`, `c`, `d` of a work, of which `b` is only read.
    fn items() -> Vec<Item> {
        let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let kind = Kind {
            resource: ApiResource::from_gvk_with_plural(&gvk, "configmaps"),
            namespaced: true,
        };
        let manifests = ["a", "b", "c", "d"].map(
            |name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}}),
        );
        let spec: ManifestWorkSpec = serde_json::from_value(json!({
            "workload": {"manifests": manifests},
            "manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "n", "name": "b"},
                "updateStrategy": {"type": "ReadOnly"}}],
        }))
        .unwrap();
        plan::items(&spec, &[(gvk, Ok(Some(kind.into())))].into())
    }

    fn resource(name: &str, uid: &str) -> AppliedResource {
        AppliedResource {
            version: "v1".into(),
            resource: "configmaps".into(),
            namespace: "n".into(),
            name: name.into(),
            uid: uid.into(),
            ..AppliedResource::default()
        }
    }

    #[test]
    fn what_was_written_or_may_have_been_is_recorded() {
        let items = items();
        let done = |ordinal: usize, uid: Option<&str>, lacking: bool| Done {
            ordinal,
            report: Report {
                meta: items[ordinal].meta.clone(),
                applied: None,
                available: None,
                content: None,
            },
            applied: uid.map(|uid| items[ordinal].target.as_ref().unwrap().applied(uid)),
            lacking,
            failed: uid.is_none(),
            wait: None,
        };
        // Written; only read; certainly not made; nobody knows.
        let done = [
            done(0, Some("1"), false),
            done(1, Some("2"), false),
            done(2, None, true),
            done(3, None, false),
        ];
        let before = ["a", "c", "d", "gone"].map(|name| resource(name, ""));
        let pending = [resource("going", "9")];
        let recorded = Agent::applied_resources(&before, &done, &items, &pending).applied_resources;
        let mut wanted = [resource("a", "1"), resource("d", ""), resource("going", "9")];
        wanted.sort();
        assert_eq!(recorded, wanted);
    }
}
