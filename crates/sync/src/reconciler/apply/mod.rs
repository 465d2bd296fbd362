//! Writes one object with the account of a sync: applies it, deletes it, or gives it up.

pub mod inventory;
mod ownership;
#[cfg(test)]
mod tests;

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Map, Value, json};
use writ_controller::{
    ObjectId, ServedKind,
    error::{is_namespace_missing, status_code},
    redact,
};

pub use self::ownership::{ManagerView, Ownership};
use super::{
    error::{Cause, Code, Failure, Problem},
    object::{DELETION, Declared, MANAGER, OUR_ANNOTATIONS, OUR_LABELS, full_name, may_take_over},
};
use crate::{model::SyncId, names};

/// The field manager of a reconciler's inventory and status.
pub const REPORTER: &str = "writ-reconciler";
/// The time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Writes objects with the account of one sync.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The client of the account.
    pub client: &'a Client,
    /// Decides which objects belong to other syncs.
    pub ownership: Ownership<'a>,
}

/// The result of the removal of an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Removal {
    /// The object is gone, or does not belong to this sync.
    Gone,
    /// The deletion was requested.
    Requested,
}

/// The field manager of a sync. There is one per sync, so the API server notices when two syncs apply one object.
pub fn field_manager(id: &SyncId) -> String {
    format!("configsync.gke.io:{}", names::manager_value(id))
}

impl Writer<'_> {
    fn id(&self) -> &SyncId {
        &self.ownership.sync.id
    }

    /// The API of an object. The inventory may hold one without a namespace, although its kind has namespaces by now.
    fn api(&self, kind: &ServedKind, id: &ObjectId) -> Api<DynamicObject> {
        if id.name.namespace.is_empty() {
            Api::all_with(self.client.clone(), &kind.resource)
        } else {
            kind.api(self.client, &id.name.namespace)
        }
    }

    /// Applies an object, and returns it as the API server stored it.
    ///
    /// The first attempt forces nothing. On a conflict the live object decides: if another sync manages it, that sync keeps
    /// it; any other field manager is overruled.
    pub async fn apply(
        &self,
        kind: &ServedKind,
        declared: &Declared,
        is_known_ours: bool,
    ) -> Result<DynamicObject, Failure> {
        let name = &declared.id.name;
        let api = self.api(kind, &declared.id);
        let fail = |verb: &str, error: kube::Error| {
            let mut failure = failure(verb, kind, &declared.id, &error);
            failure.problem = failure.problem.at(&declared.path);
            failure
        };
        let manager = field_manager(self.id());
        let params = PatchParams::apply(&manager);
        let patch = Patch::Apply(&declared.value);
        match limited(api.patch(&name.name, &params, &patch)).await {
            Err(error) if status_code(&error) == Some(409) => {}
            applied => return applied.map_err(|error| fail("patch", error)),
        }
        let live = limited(api.get_opt(&name.name)).await;
        let live = live.map_err(|error| fail("get", error))?;
        let other = live.and_then(|live| live.metadata.annotations?.remove(MANAGER));
        if !may_take_over(self.id(), other.as_deref())
            && self
                .is_of_another(other.as_deref(), &declared.id, is_known_ours)
                .await?
        {
            return Err(Failure {
                problem: conflict(self.id(), declared, other.as_deref().unwrap_or_default()),
                cause: Cause::ManagementConflict,
            });
        }
        let forced = limited(api.patch(&name.name, &params.force(), &patch)).await;
        forced.map_err(|error| fail("patch", error))
    }

    async fn is_of_another(
        &self,
        manager: Option<&str>,
        id: &ObjectId,
        is_known_ours: bool,
    ) -> Result<bool, Failure> {
        let answer = self.ownership.is_of_another(manager, id, is_known_ours).await;
        answer.map_err(|error| {
            // The manager asks with its own account, so a refused token is not that of the sync.
            let code = error.code().filter(|code| *code != 401);
            Failure::of_code(Problem::new(Code::ApiServer, error.to_string()).about(id), code)
        })
    }

    /// Deletes an object that this sync has created. An object that was taken over by another sync stays.
    pub async fn delete(
        &self,
        kind: &ServedKind,
        id: &ObjectId,
        propagation: PropagationPolicy,
    ) -> Result<Removal, Failure> {
        let api = self.api(kind, id);
        let Some(live) = self.find_ours(&api, kind, id).await? else {
            return Ok(Removal::Gone);
        };
        let annotations = live.metadata.annotations.as_ref();
        let deletion = annotations.and_then(|annotations| annotations.get(DELETION));
        if deletion.is_some_and(|deletion| deletion == "detach") {
            self.strip_metadata(&api, kind, id, &live).await?;
            return Ok(Removal::Gone);
        }
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(Removal::Requested);
        }
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions {
                uid: live.metadata.uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match limited(api.delete(&id.name.name, &params)).await {
            Ok(_) => Ok(Removal::Requested),
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(Removal::Gone),
            Err(error) => Err(failure("delete", kind, id, &error)),
        }
    }

    /// Leaves an object on the cluster, without the metadata of a managed object.
    pub async fn give_up(&self, kind: &ServedKind, id: &ObjectId) -> Result<(), Failure> {
        let api = self.api(kind, id);
        match self.find_ours(&api, kind, id).await? {
            Some(live) => self.strip_metadata(&api, kind, id, &live).await,
            None => Ok(()),
        }
    }

    /// The live object, if it exists and belongs to this sync. In doubt it does not.
    async fn find_ours(
        &self,
        api: &Api<DynamicObject>,
        kind: &ServedKind,
        id: &ObjectId,
    ) -> Result<Option<DynamicObject>, Failure> {
        let live = match limited(api.get(&id.name.name)).await {
            Ok(live) => live,
            Err(error) if status_code(&error) == Some(404) && !is_kind_missing(&error) => return Ok(None),
            // An object that cannot be requested, or of a kind that stores nothing, was never created.
            Err(error) if is_unsendable(&error) || status_code(&error) == Some(405) => return Ok(None),
            Err(error) => return Err(failure("get", kind, id, &error)),
        };
        let annotations = live.metadata.annotations.as_ref();
        let manager = annotations
            .and_then(|annotations| annotations.get(MANAGER))
            .map(String::as_str);
        let is_ours = manager.is_some() && !self.is_of_another(manager, id, false).await?;
        Ok(is_ours.then_some(live))
    }

    async fn strip_metadata(
        &self,
        api: &Api<DynamicObject>,
        kind: &ServedKind,
        id: &ObjectId,
        live: &DynamicObject,
    ) -> Result<(), Failure> {
        let nothing = |keys: &[&str]| -> Map<String, Value> {
            keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect()
        };
        let patch = json!({ "metadata": {
            "uid": live.metadata.uid,
            "labels": nothing(&OUR_LABELS),
            "annotations": nothing(&OUR_ANNOTATIONS),
        }});
        let params = PatchParams {
            field_manager: Some(field_manager(self.id())),
            ..PatchParams::default()
        };
        match limited(api.patch(&id.name.name, &params, &Patch::Merge(&patch))).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(failure("patch", kind, id, &error)),
        }
    }
}

fn conflict(id: &SyncId, declared: &Declared, other: &str) -> Problem {
    let message = format!(
        "{} is declared by two syncs: {id} and the one whose manager annotation is {other:?}. Remove it from one of the two sources; if the other sync is gone, remove the annotation {MANAGER} from the object",
        full_name(&declared.id)
    );
    Problem::new(Code::ManagementConflict, message)
        .at(&declared.path)
        .about(&declared.id)
}

/// Whether such a request cannot be built, as for a name with a space in it.
fn is_unsendable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::BuildRequest(_) | kube::Error::HttpError(_))
}

/// Whether the whole kind is missing, and not an object of it.
fn is_kind_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let details = status.details.as_ref();
    let is_named = details.is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !(status.reason == "NotFound" && is_named)
}

async fn limited<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(
            "the API server did not answer in time".into(),
        )),
    }
}

/// The failure of a request, with the verb and the resource of a right that is missing.
fn failure(verb: &str, kind: &ServedKind, id: &ObjectId, error: &kube::Error) -> Failure {
    let code = status_code(error);
    let name = full_name(id);
    let answer = answer(id, error);
    let problem = match code {
        Some(403) => {
            let resource = &kind.resource;
            let dot = if resource.group.is_empty() { "" } else { "." };
            let place = if id.name.namespace.is_empty() {
                "in the whole cluster".to_owned()
            } else {
                format!("in namespace {:?}", id.name.namespace)
            };
            Problem::new(
                Code::InsufficientPermission,
                format!(
                    "the reconciler may not {verb} {}{dot}{} {place} ({name}): {answer}",
                    resource.plural, resource.group
                ),
            )
        }
        Some(400 | 404 | 405 | 409 | 422) => {
            Problem::new(Code::Resource, format!("{name} was refused: {answer}"))
        }
        None if is_unsendable(error) => {
            Problem::new(Code::Resource, format!("{name} cannot be requested: {answer}"))
        }
        _ => Problem::new(Code::ApiServer, format!("cannot {verb} {name}: {answer}")),
    };
    let cause = if is_unsendable(error) {
        Cause::Refused
    } else if is_kind_missing(error) {
        Cause::KindNotServed
    } else if is_namespace_missing(error) && !id.name.namespace.is_empty() {
        Cause::NamespaceMissing
    } else {
        Cause::of_code(code)
    };
    Failure {
        problem: problem.about(id),
        cause,
    }
}

/// The answer of the API server. It may quote the values of a Secret: a number without quotes in a field of strings, or
/// whatever an admission webhook refuses.
fn answer(id: &ObjectId, error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return error.to_string();
    };
    let is_secret = id.group.is_empty() && &*id.kind == "Secret";
    if is_secret && redact::quotable(status.code, &status.message, &id.name).is_none() {
        return "the answer may quote its values and is withheld; `kubectl apply --dry-run=server` shows it"
            .into();
    }
    status.message.clone()
}
