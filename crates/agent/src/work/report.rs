//! Writes the status of a work on the hub, if it differs.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::{ObjectMeta, PartialObjectMeta},
};
use serde_json::json;
use writ_api::work::{ManifestWork, ManifestWorkStatus};
use writ_controller::{
    Error,
    condition::{self, Wanted},
    error::Context as _,
    write::replacement,
};

use super::{
    drift::resource_version,
    state::Agent,
    status::{self, in_flight::InFlightStatus},
};

impl Agent {
    /// Writes the status of a work, if it differs.
    pub async fn write_status(&self, work: &ManifestWork, wanted: &ManifestWorkStatus) -> Result<(), Error> {
        let name = work.name_any();
        let have = self
            .states
            .with(&name, |state| state.in_flight.latest(work).written);
        let Some(patch) = replacement(&json!(have), &json!(wanted)) else {
            self.states.with(&name, |state| state.in_flight.drop_attempt());
            return Ok(());
        };
        let body = json!({"metadata": {"uid": work.uid()}, "status": patch});
        let patched = self
            .hub_works_metadata()
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .inspect_err(|_| {
                self.states
                    .with(&name, |state| state.in_flight.mark_attempted(work, wanted));
            })
            .context(|| format!("report the status of ManifestWork {name}"))?;
        if only_status_changed(&patched.metadata, &work.metadata) {
            let mut work = work.clone();
            work.metadata = patched.metadata;
            work.metadata.managed_fields = None;
            work.status = Some(wanted.clone());
            self.works.record(work)?;
            self.states
                .with(&name, |state| state.in_flight = InFlightStatus::default());
        } else {
            let version = resource_version(patched.metadata.resource_version.as_deref());
            self.states
                .with(&name, |state| state.in_flight.mark_written(work, wanted, version));
        }
        Ok(())
    }

    /// Reports that a work cannot be parsed, once per generation. What was applied stays as it is.
    pub async fn report_broken(&self, work: &ManifestWork, problem: &str) -> Result<(), Error> {
        let (name, generation) = (work.name_any(), work.metadata.generation);
        let is_reported = self
            .states
            .with(&name, |state| state.reported_broken == generation);
        if generation.is_some() && is_reported {
            return Ok(());
        }
        let mut conditions = work.status.clone().unwrap_or_default().conditions;
        let wanted = Wanted::new(
            status::APPLIED,
            false,
            "AppliedManifestWorkFailed",
            format!("Failed to apply manifest work: {problem}"),
        );
        condition::set(&mut conditions, &wanted, generation, Timestamp::now());
        let body = json!({"metadata": {"uid": work.uid()}, "status": {"conditions": conditions}});
        self.hub_works_metadata()
            .patch_status(&name, &PatchParams::apply(crate::MANAGER), &Patch::Merge(&body))
            .await
            .context(|| format!("report that ManifestWork {name} cannot be parsed"))?;
        self.states
            .with(&name, |state| state.reported_broken = generation);
        Ok(())
    }

    fn hub_works_metadata(&self) -> Api<PartialObjectMeta<ManifestWork>> {
        Api::namespaced(self.hub.clone(), &self.cluster_name)
    }
}

/// Whether a status was written to the very version that it is about. Otherwise only the watch may show the object: cached
/// under its new version, the other change would look as if it had been seen already.
pub fn only_status_changed(now: &ObjectMeta, then: &ObjectMeta) -> bool {
    now.generation.is_some()
        && now.generation == then.generation
        && now.labels == then.labels
        && now.finalizers == then.finalizers
        && now.deletion_timestamp == then.deletion_timestamp
}
