//! What a pass reports, and does, about manifests that it does not write: unmapped, refused, held back, failed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use writ_controller::{
    condition::{self, Wanted},
    error::{is_namespace_missing, is_namespace_terminating, status_code},
};

use super::{
    conflicts::was_written,
    delete::{Claim, Deletion, delete},
    pass::Pass,
    read::read,
};
use crate::work::{
    drift::resource_version,
    model::{
        ApplyFailure, ManifestOutcome, ManifestReport, ObjectContent, PlannedManifest, Prerequisite, Refused,
        TargetObject,
    },
    plan::rbac::refuses_foreign,
    status::{self, content::read_content, redact::describe_failure},
};

impl Pass<'_> {
    pub(super) fn report_unmapped(manifest: &PlannedManifest, problem: &str) -> ManifestOutcome {
        ManifestOutcome {
            ordinal: manifest.ordinal,
            report: ManifestReport {
                meta: manifest.meta.clone(),
                applied: Some(status::failed(problem)),
                available: Some(Wanted::new(
                    status::AVAILABLE,
                    condition::Status::Unknown,
                    "IncompleteResourceMeta",
                    "Resource meta is incompleted",
                )),
                content: None,
            },
            recorded: None,
            is_absent: false,
            failed: true,
            waits_for: (!manifest.meta.kind.is_empty()).then_some(Prerequisite::Kind),
        }
    }

    /// Reports the live object if the executor may read it. Changes of the object meanwhile are remembered, and count once it
    /// is allowed.
    pub(super) async fn report_refused(
        &self,
        manifest: &PlannedManifest,
        target: &TargetObject,
        refused: &Refused,
        is_readable: bool,
    ) -> ManifestOutcome {
        let (available, content) = self.read_unwritten(target, is_readable).await;
        ManifestOutcome {
            ordinal: manifest.ordinal,
            report: ManifestReport {
                meta: manifest.meta.clone(),
                applied: Some(match refused {
                    Refused::Denied(reason) => status::failed(reason),
                    Refused::HeldBack(reason) => status::held_back(reason),
                }),
                available,
                content,
            },
            recorded: None,
            is_absent: false,
            // A change of RBAC heals it, and that is watched.
            failed: false,
            waits_for: None,
        }
    }

    /// The state of an object that is not written; nothing if it was reported already.
    async fn read_unwritten(
        &self,
        target: &TargetObject,
        is_readable: bool,
    ) -> (Option<Wanted>, Option<ObjectContent>) {
        let (drift, resource, name) = (&self.agent.drift, &target.kind.resource, target.full_name());
        if !is_readable {
            drift.mark_reported(self.key, resource, &name, None);
            let unknown =
                status::availability_unknown("not read: it is not known that the executor may get it");
            return (Some(unknown), None);
        }
        let Some(newest) = drift.unreported_version(self.key, resource, &name) else {
            return (None, None);
        };
        let _turn = self.agent.turns.acquire().await.ok();
        let (available, live) = match read(&self.agent.spoke, target).await {
            Ok(Some(live)) => (status::available(), Some(live)),
            Ok(None) => (status::not_available(), None),
            Err(error) if target.kind_to_come && status_code(&error) == Some(404) => {
                (status::not_available(), None)
            }
            Err(error) => {
                drift.mark_reported(self.key, resource, &name, None);
                return (Some(status::availability_unknown(&error.to_string())), None);
            }
        };
        let version = live
            .as_ref()
            .map(|live| resource_version(live.metadata.resource_version.as_deref()));
        let reported = version.unwrap_or_default().max(newest);
        drift.mark_reported(self.key, resource, &name, Some(reported));
        let content = live.map(|live| read_content(&live, &target.config));
        (Some(available), content)
    }

    pub(super) async fn report_failure(
        &self,
        manifest: &PlannedManifest,
        target: &TargetObject,
        failure: &ApplyFailure,
    ) -> ManifestOutcome {
        let message = describe_failure(failure, target);
        let waits_for = prerequisite(failure, &target.namespace);
        if waits_for == Some(Prerequisite::Kind) {
            self.agent.mapper.forget(&target.kind.resource.group);
        }
        let applied = match failure {
            ApplyFailure::IgnoreFields(message) => Wanted::new(
                status::APPLIED,
                false,
                "AppliedManifestSSAIgnoreFieldError",
                format!("Failed to process ignoreFields: {message}"),
            ),
            ApplyFailure::Conflict(_)
            | ApplyFailure::Foreign(_)
            | ApplyFailure::HeldBack(_)
            | ApplyFailure::Server(_) => status::failed(&message),
        };
        // Time does not heal a conflict; that the other object is removed comes by a watch.
        let failed = match failure {
            ApplyFailure::Conflict(_) | ApplyFailure::Foreign(_) => false,
            ApplyFailure::HeldBack(_) => !self.take_back(target).await,
            ApplyFailure::IgnoreFields(_) | ApplyFailure::Server(_) => true,
        };
        let api = target.kind.api(&self.agent.spoke, &target.namespace);
        let (available, live) = match api.get_metadata_opt(&target.name).await {
            Ok(Some(live)) => (status::available(), Some(live.metadata)),
            Ok(None) => (status::not_available(), None),
            Err(error) => (status::availability_unknown(&error.to_string()), None),
        };
        let own = live.filter(|live| self.belongs_to_work(target, live));
        let is_absent = own.is_none() && available.status != condition::Status::Unknown;
        ManifestOutcome {
            ordinal: manifest.ordinal,
            report: ManifestReport {
                meta: manifest.meta.clone(),
                applied: Some(applied),
                available: Some(available),
                content: None,
            },
            // A foreign object is not recorded as the work's.
            recorded: own.and_then(|live| live.uid).map(|uid| target.to_record(&uid)),
            is_absent,
            failed,
            waits_for,
        }
    }

    /// A manifest whose role was not written: a foreign role of that name, now or later, would decide what it grants. If the
    /// role is certainly not the work's, the object of an earlier revision is deleted.
    pub(super) async fn hold_back(
        &self,
        manifest: &PlannedManifest,
        target: &TargetObject,
        is_role_absent: bool,
    ) -> ManifestOutcome {
        let held_back = Refused::HeldBack("Held back: the role that it binds could not be written".into());
        let is_safe = !is_role_absent || !refuses_foreign(target) || self.take_back(target).await;
        let outcome = self.report_refused(manifest, target, &held_back, true).await;
        ManifestOutcome {
            failed: !is_safe,
            ..outcome
        }
    }

    /// Deletes the object of a manifest if the work wrote it. Returns true if it is gone.
    async fn take_back(&self, target: &TargetObject) -> bool {
        if !target.owned {
            return true;
        }
        let uid = self.recorded.get(&target.identity()).copied().unwrap_or_default();
        let record = target.to_record(uid);
        match delete(self.agent, &record, self.owner, Claim::RefusesForeign).await {
            Ok(deletion) => deletion == Deletion::Done,
            Err(error) => {
                tracing::warn!(?record, %error, "cannot delete an object that is held back, will try again");
                false
            }
        }
    }

    /// Whether an object belongs to the work.
    fn belongs_to_work(&self, target: &TargetObject, live: &ObjectMeta) -> bool {
        let mut references = live.owner_references.iter().flatten();
        let uid = self.recorded.get(&target.identity()).copied();
        references.any(|reference| reference.uid == self.owner.uid)
            || was_written(live, &self.owner.manager(), uid)
    }
}

/// What has to happen before a write can succeed that failed so.
fn prerequisite(failure: &ApplyFailure, namespace: &str) -> Option<Prerequisite> {
    let ApplyFailure::Server(error) = failure else {
        return None;
    };
    if is_namespace_missing(error) || is_namespace_terminating(error) {
        return Some(Prerequisite::Namespace(namespace.into()));
    }
    match status_code(error)? {
        404 => Some(Prerequisite::Kind),
        403 => Some(Prerequisite::Permission),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_write_waits_for_what_is_missing() {
        let namespace = Some(Prerequisite::Namespace("web".into()));
        for (code, details, wanted) in [
            (
                404,
                json!({"kind": "namespaces", "name": "web"}),
                namespace.clone(),
            ),
            (
                404,
                json!({"kind": "configmaps", "name": "web"}),
                Some(Prerequisite::Kind),
            ),
            (404, json!({}), Some(Prerequisite::Kind)),
            (
                403,
                json!({"kind": "configmaps", "causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}),
                namespace,
            ),
            (403, json!({"kind": "configmaps"}), Some(Prerequisite::Permission)),
            (500, json!({}), None),
        ] {
            // Whatever the message says.
            let message = "namespaces \"web\": unable to create new content in namespace";
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": message,
                "reason": "R", "details": details});
            let failure = ApplyFailure::from(kube::Error::Api(serde_json::from_value(status).unwrap()));
            assert_eq!(prerequisite(&failure, "web"), wanted, "{code} {details}");
        }
        assert_eq!(prerequisite(&ApplyFailure::Conflict("no".into()), "web"), None);
    }
}
