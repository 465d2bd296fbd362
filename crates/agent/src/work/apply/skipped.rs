//! What a pass says, and does, about manifests that it does not write: refused, held back, failed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use writ_api::work::AppliedResource;
use writ_controller::{
    condition::{self, Wanted},
    error::status_code,
};

use super::{
    apply::{self, Failure},
    cache::version,
    content,
    delete::{Claim, Gone, delete},
    executor::Refused,
    pass::{Done, Pass, Wait},
    plan::{Item, Target},
    read::read,
    records::key,
    status::{self, Content, Report},
    strangers::{refuses, wrote},
    words,
};

/// What the server says of a namespace that is on its way out. It may come back.
const TERMINATING: &str = "unable to create new content in namespace";

impl Pass<'_> {
    pub(super) fn unmapped(item: &Item, problem: &str) -> Done {
        let wait = (!item.meta.kind.is_empty()).then_some(Wait::Kind);
        Done {
            ordinal: item.ordinal,
            report: Report {
                meta: item.meta.clone(),
                applied: Some(status::failed(problem)),
                available: Some(Wanted::new(
                    status::AVAILABLE,
                    condition::Status::Unknown,
                    "IncompleteResourceMeta",
                    "Resource meta is incompleted",
                )),
                content: None,
            },
            applied: None,
            lacking: false,
            failed: true,
            wait,
        }
    }

    /// Nothing is written. What is there is told if the executor may read it; what happens to it meanwhile is
    /// remembered, and looked at once it is allowed.
    pub(super) async fn refused(
        &self,
        item: &Item,
        target: &Target,
        refused: &Refused,
        readable: bool,
    ) -> Done {
        let (available, content) = self.tell(target, readable).await;
        Done {
            ordinal: item.ordinal,
            report: Report {
                meta: item.meta.clone(),
                applied: Some(match refused {
                    Refused::Denied(reason) => status::failed(reason),
                    Refused::Held(reason) => status::held(reason),
                }),
                available,
                content,
            },
            applied: None,
            lacking: false,
            // RBAC heals it, and that comes by a watch.
            failed: false,
            wait: None,
        }
    }

    /// What is there of an object that is not written; nothing if that is known already.
    async fn tell(&self, target: &Target, readable: bool) -> (Option<Wanted>, Option<Content>) {
        let (objects, resource, name) = (&self.agent.objects, &target.kind.resource, target.place());
        if !readable {
            objects.tell(self.key, resource, &name, None);
            let unknown =
                status::availability_unknown("not read: it is not known that the executor may get it");
            return (Some(unknown), None);
        }
        let Some(before) = objects.untold(self.key, resource, &name) else {
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
                objects.tell(self.key, resource, &name, None);
                return (Some(status::availability_unknown(&error.to_string())), None);
            }
        };
        let shown = live
            .as_ref()
            .map(|live| version(live.metadata.resource_version.as_deref()));
        objects.tell(
            self.key,
            resource,
            &name,
            Some(shown.unwrap_or_default().max(before)),
        );
        let content = live.map(|live| content::read(&live, &target.config));
        (Some(available), content)
    }

    pub(super) async fn failed(&self, item: &Item, target: &Target, failure: &Failure) -> Done {
        let message = words::shown(failure, target);
        let wait = waits_for(failure, &target.namespace);
        if wait == Some(Wait::Kind) {
            self.agent.mapper.forget(&target.kind.resource.group);
        }
        let applied = match failure {
            Failure::IgnoreFields(message) => Wanted::new(
                status::APPLIED,
                false,
                "AppliedManifestSSAIgnoreFieldError",
                format!("Failed to process ignoreFields: {message}"),
            ),
            Failure::Conflict(_) | Failure::Foreign(_) | Failure::Held(_) | Failure::Server(_) => {
                status::failed(&message)
            }
        };
        let mut retry = !matches!(
            failure,
            Failure::Conflict(_) | Failure::Foreign(_) | Failure::Held(_)
        );
        if matches!(failure, Failure::Held(_)) {
            retry = !self.take_back(target).await;
        }
        let api = apply::api(&self.agent.spoke, &target.kind, &target.namespace);
        let (available, live) = match api.get_metadata_opt(&target.name).await {
            Ok(Some(live)) => (status::available(), Some(live.metadata)),
            Ok(None) => (status::not_available(), None),
            Err(error) => (status::availability_unknown(&error.to_string()), None),
        };
        let own = live.filter(|live| self.is_own(target, live));
        let lacking = own.is_none() && available.status != condition::Status::Unknown;
        Done {
            ordinal: item.ordinal,
            report: Report {
                meta: item.meta.clone(),
                applied: Some(applied),
                available: Some(available),
                content: None,
            },
            // What is not ours is not recorded as ours.
            applied: own.and_then(|live| live.uid).map(|uid| target.applied(&uid)),
            lacking,
            // A conflict is not a failure that time heals; that somebody removes the object comes by a watch.
            failed: retry,
            wait,
        }
    }

    /// A manifest whose role could not be written: whoever made, or makes later, a role of that name would decide what it
    /// grants. Where the role is certainly not the work's, what an earlier revision granted by it goes.
    pub(super) async fn held_back(&self, item: &Item, target: &Target, lacking: bool) -> Done {
        let held = Refused::Held("Held back: the role that it binds could not be written".into());
        let taken = !lacking || !refuses(target) || self.take_back(target).await;
        let done = self.refused(item, target, &held, true).await;
        Done {
            failed: !taken,
            ..done
        }
    }

    /// Deletes what the work made of a manifest, if it did; whether that is done.
    async fn take_back(&self, target: &Target) -> bool {
        if !target.owned {
            return true;
        }
        let recorded = self.recorded.get(&key(target)).copied().unwrap_or_default();
        let resource: AppliedResource = target.applied(recorded);
        match delete(self.agent, &resource, self.owner, Claim::Guarded).await {
            Ok(gone) => gone == Gone::Yes,
            Err(error) => {
                tracing::warn!(?resource, %error, "cannot take back what is held back, will try again");
                false
            }
        }
    }

    /// Whether an object is the work's.
    fn is_own(&self, target: &Target, live: &ObjectMeta) -> bool {
        let mut references = live.owner_references.iter().flatten();
        references.any(|reference| reference.uid == self.owner.uid)
            || wrote(
                live,
                &self.owner.manager(),
                self.recorded.get(&key(target)).copied(),
            )
    }
}

/// What has to come before a write can succeed that failed so.
fn waits_for(failure: &Failure, namespace: &str) -> Option<Wait> {
    let says = |words: &str| failure.message().contains(words);
    match failure.code()? {
        404 if says("namespaces \"") => Some(Wait::Namespace(namespace.into())),
        404 => Some(Wait::Kind),
        403 if says(TERMINATING) => Some(Wait::Namespace(namespace.into())),
        403 => Some(Wait::Permission),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_waited_for() {
        let namespace = Some(Wait::Namespace("web".into()));
        for (code, message, wanted) in [
            (404, "namespaces \"web\" not found", namespace.clone()),
            (
                404,
                "the server could not find the requested resource",
                Some(Wait::Kind),
            ),
            (
                403,
                "configmaps \"a\" is forbidden: unable to create new content in namespace web because it is being terminated",
                namespace,
            ),
            (
                403,
                "configmaps \"a\" is forbidden: User \"x\" cannot patch",
                Some(Wait::Permission),
            ),
            (500, "no", None),
        ] {
            let said = json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "R"});
            let failure = Failure::from(kube::Error::Api(serde_json::from_value(said).unwrap()));
            assert_eq!(waits_for(&failure, "web"), wanted, "{message}");
        }
    }
}
