//! Applies one object, takes one away, or gives one up, as the sync's account.

pub mod inventory;
pub mod ownership;

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Map, Value, json};
use writ_controller::error::status_code;

use self::ownership::Claims;
use super::{
    error::{Code, Problem},
    object::{DELETION, Declared, Key, MANAGER, OUR_ANNOTATIONS, OUR_LABELS, may_take},
    rest_mapper::Kind,
};
use crate::{model::SyncId, names};

/// How long one request may take.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// Why something could not be done to an object.
#[derive(Debug)]
pub struct Failure {
    /// For the status.
    pub problem: Problem,
    /// What it means for what comes next.
    pub cause: Cause,
}

/// What a failure means for what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was refused, or cannot be done.
    Refused,
    /// The account itself was refused: its token must be asked for again.
    Unauthorized,
    /// Nobody answered.
    Unanswered,
    /// The kind is not served in this version (any more).
    Unserved,
    /// There is no such namespace.
    Homeless,
}

impl Failure {
    /// Something that is refused here already.
    pub fn refused(problem: Problem) -> Self {
        Self {
            problem,
            cause: Cause::Refused,
        }
    }

    /// What the API server said, or did not say.
    pub fn of(problem: Problem, code: Option<u16>) -> Self {
        let cause = match code {
            Some(401) => Cause::Unauthorized,
            Some(_) => Cause::Refused,
            None => Cause::Unanswered,
        };
        Self { problem, cause }
    }
}

/// The API for one object.
pub fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    if kind.namespaced && !namespace.is_empty() {
        Api::namespaced_with(client.clone(), namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}

/// One field manager per sync: the API server itself sees when two syncs want one object.
pub fn field_manager(id: &SyncId) -> String {
    format!("configsync.gke.io:{}", names::manager_value(id))
}

/// Applies an object; returns the version that the API server gave it.
///
/// The first try forces nothing. Where somebody else owns a field, what is there decides: another sync keeps its
/// object and a conflict is reported, anybody else is overruled.
pub async fn apply(
    client: &Client,
    id: &SyncId,
    kind: &Kind,
    declared: &Declared,
    claims: &Claims<'_>,
) -> Result<String, Failure> {
    let api = api(client, kind, &declared.key.namespace);
    let manager = field_manager(id);
    let fail = |error: kube::Error| failure("patch", kind, &declared.key, Some(&declared.path), &error);
    let params = PatchParams::apply(&manager);
    let patch = Patch::Apply(&declared.value);
    match limited(api.patch(&declared.key.name, &params, &patch)).await {
        Ok(object) => return Ok(object.metadata.resource_version.unwrap_or_default()),
        Err(error) if status_code(&error) == Some(409) => {}
        Err(error) => return Err(fail(error)),
    }
    let live = match limited(api.get_opt(&declared.key.name)).await {
        Ok(live) => live,
        Err(error) => return Err(failure("get", kind, &declared.key, Some(&declared.path), &error)),
    };
    let other = live.and_then(|live| live.metadata.annotations?.remove(MANAGER));
    if !may_take(id, other.as_deref()) && claims.anothers(other.as_deref(), &declared.key).await? {
        let other = other.as_deref().unwrap_or_default();
        return Err(Failure::refused(conflict(id, declared, other)));
    }
    match limited(api.patch(&declared.key.name, &params.force(), &patch)).await {
        Ok(object) => Ok(object.metadata.resource_version.unwrap_or_default()),
        Err(error) => Err(fail(error)),
    }
}

fn conflict(id: &SyncId, declared: &Declared, other: &str) -> Problem {
    Problem::new(
        Code::ManagementConflict,
        format!(
            "{} is declared by two syncs: {id} and the one that calls itself {other:?}. Take it out of one of the two sources; if the other sync is gone, remove the annotation {MANAGER} from the object",
            declared.key
        ),
    )
    .at(&declared.path)
    .about(&declared.key)
}

impl Claims<'_> {
    async fn anothers(&self, manager: Option<&str>, key: &Key) -> Result<bool, Failure> {
        self.is_anothers(manager, key).await.map_err(|error| {
            // Whom it asked is the manager, with an account of its own.
            let code = error.code().filter(|code| *code != 401);
            Failure::of(Problem::new(Code::ApiServer, error.to_string()).about(key), code)
        })
    }
}

/// What came of taking an object away.
#[derive(Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is not there (any more), or is not ours.
    Gone,
    /// Its deletion was asked for.
    Asked,
}

/// Deletes an object that this sync made. One that somebody else took over stays.
pub async fn delete(
    client: &Client,
    id: &SyncId,
    kind: &Kind,
    key: &Key,
    propagation: PropagationPolicy,
    claims: &Claims<'_>,
) -> Result<Removal, Failure> {
    let api = api(client, kind, &key.namespace);
    let Some(live) = find(&api, kind, key).await? else {
        return Ok(Removal::Gone);
    };
    let annotations = live.metadata.annotations.unwrap_or_default();
    let manager = annotations.get(MANAGER).map(String::as_str);
    if manager.is_none() || claims.anothers(manager, key).await? {
        return Ok(Removal::Gone);
    }
    if annotations.get(DELETION).is_some_and(|value| value == "detach") {
        give_up(client, id, kind, key, claims).await?;
        return Ok(Removal::Gone);
    }
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Removal::Asked);
    }
    let params = DeleteParams {
        propagation_policy: Some(propagation),
        preconditions: Some(Preconditions {
            uid: live.metadata.uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match limited(api.delete(&key.name, &params)).await {
        Ok(_) => Ok(Removal::Asked),
        Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(Removal::Gone),
        Err(error) => Err(failure("delete", kind, key, None, &error)),
    }
}

/// Leaves an object where it is, without anything that says it is ours.
pub async fn give_up(
    client: &Client,
    id: &SyncId,
    kind: &Kind,
    key: &Key,
    claims: &Claims<'_>,
) -> Result<(), Failure> {
    let api = api(client, kind, &key.namespace);
    let Some(live) = find(&api, kind, key).await? else {
        return Ok(());
    };
    let annotations = live.metadata.annotations.as_ref();
    let manager = annotations
        .and_then(|annotations| annotations.get(MANAGER))
        .map(String::as_str);
    if manager.is_none() || claims.anothers(manager, key).await? {
        return Ok(());
    }
    let nothing = |keys: &[&str]| -> Map<String, Value> {
        keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect()
    };
    let patch = json!({ "metadata": {
        "uid": live.metadata.uid,
        "labels": nothing(&OUR_LABELS),
        "annotations": nothing(&OUR_ANNOTATIONS),
    }});
    let params = PatchParams {
        field_manager: Some(field_manager(id)),
        ..PatchParams::default()
    };
    match limited(api.patch(&key.name, &params, &Patch::Merge(&patch))).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(failure("patch", kind, key, None, &error)),
    }
}

/// The object, if it is there.
async fn find(api: &Api<DynamicObject>, kind: &Kind, key: &Key) -> Result<Option<DynamicObject>, Failure> {
    match limited(api.get(&key.name)).await {
        Ok(live) => Ok(Some(live)),
        Err(error) if status_code(&error) == Some(404) && !unserved(&error) => Ok(None),
        // What cannot be asked for, or is of a kind that keeps nothing, was never made.
        Err(error) if unsendable(&error) || status_code(&error) == Some(405) => Ok(None),
        Err(error) => Err(failure("get", kind, key, None, &error)),
    }
}

/// Whether there can be no such request, as for a name with a space in it.
fn unsendable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::BuildRequest(_) | kube::Error::HttpError(_))
}

/// Whether it is not the object that is not there, but its whole kind.
fn unserved(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let named = status
        .details
        .as_ref()
        .is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !(status.reason == "NotFound" && named)
}

/// Whether it is not the object that is not there, but its namespace.
fn homeless(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let about = status.details.as_ref().map(|details| details.kind.as_str());
    status.code == 404 && about == Some("namespaces")
}

async fn limited<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(
            "the API server did not answer in time".into(),
        )),
    }
}

/// What the API server refused, with verb and resource, in the number that fits.
pub fn failure(verb: &str, kind: &Kind, key: &Key, path: Option<&str>, error: &kube::Error) -> Failure {
    let code = status_code(error);
    let said = match error {
        // It quotes what it does not understand: a password without quotes around it, which YAML takes for a number.
        kube::Error::Api(_)
            if (key.group.as_str(), key.kind.as_str()) == ("", "Secret")
                && !matches!(code, Some(401 | 403 | 404 | 409)) =>
        {
            "what the API server says of it may quote its values, so it is not shown here; `kubectl apply --dry-run=server` shows it".to_owned()
        }
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    let dot = if kind.resource.group.is_empty() { "" } else { "." };
    let resource = format!("{}{dot}{}", kind.resource.plural, kind.resource.group);
    let place = if key.namespace.is_empty() {
        "in the whole cluster".to_owned()
    } else {
        format!("in namespace {:?}", key.namespace)
    };
    let problem = match code {
        Some(403) => Problem::new(
            Code::InsufficientPermission,
            format!("the reconciler may not {verb} {resource} {place} ({key}): {said}"),
        ),
        Some(400 | 404 | 405 | 409 | 422) => Problem::new(Code::Resource, format!("{key} was refused: {said}")),
        None if unsendable(error) => Problem::new(Code::Resource, format!("{key} cannot be asked for: {said}")),
        _ => Problem::new(Code::ApiServer, format!("cannot {verb} {key}: {said}")),
    };
    let problem = match path {
        Some(path) => problem.at(path),
        None => problem,
    };
    let problem = problem.about(key);
    if unsendable(error) {
        return Failure::refused(problem);
    }
    let cause = if unserved(error) {
        Cause::Unserved
    } else if homeless(error) && !key.namespace.is_empty() {
        Cause::Homeless
    } else {
        return Failure::of(problem, code);
    };
    Failure { problem, cause }
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind, Status};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_namespace_is_told_from_what_is_missing_in_it() {
        let kind = Kind {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap")),
            namespaced: true,
        };
        let key = Key {
            kind: "ConfigMap".into(),
            namespace: "gone".into(),
            name: "a".into(),
            ..Key::default()
        };
        let cause = |code: u16, details: Value| {
            let status = json!({ "status": "Failure", "code": code, "message": "no", "reason": "NotFound", "details": details });
            let status: Status = serde_json::from_value(status).unwrap();
            failure("patch", &kind, &key, None, &kube::Error::Api(Box::new(status))).cause
        };
        let named = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
        assert_eq!(cause(404, named("namespaces", "gone")), Cause::Homeless);
        assert_eq!(cause(404, named("configmaps", "a")), Cause::Refused);
        assert_eq!(cause(404, json!({})), Cause::Unserved);
        // It is there, and goes away: what is in it is refused until it is gone.
        assert_eq!(cause(403, named("namespaces", "gone")), Cause::Refused);
    }
}
