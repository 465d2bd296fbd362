//! Writes only differences: create what is missing, patch what differs, leave the rest alone.

mod difference;
mod ensure;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    Error, Name,
    error::{Context as _, status_code},
};

pub use self::{
    difference::{difference, replacement},
    ensure::{Ensure, patch},
};

/// How often others may be faster.
const MAX_CONFLICTS: usize = 5;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not there and was created.
    Created,
    /// It differed and was changed.
    Changed,
    /// It was as wanted: nothing was sent.
    Unchanged,
}

/// Makes the object hold everything in `wanted`: creates it, or patches what differs from `current`.
///
/// `current` is what a watch or a read showed; a stale one costs a request, never a wrong result.
pub async fn ensure<K>(api: &Api<K>, current: Option<&K>, wanted: &K, manager: &str) -> Result<Outcome, Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    Ensure::new(api, manager).run(current, wanted).await
}

/// Creates an object. That there is one already is an error (409).
pub async fn create<K>(api: &Api<K>, wanted: &K, manager: &str) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let created = api.create(&post_params(manager), wanted).await;
    answered(created).context(|| format!("create {}", full_name(wanted)))
}

/// Deletes an object as it was seen and creates it anew, because what differs cannot be changed: the role of a binding.
pub async fn recreate<K>(api: &Api<K>, seen: &K, wanted: &K, manager: &str) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    delete_as_seen(api, seen).await?;
    create(api, wanted, manager).await
}

/// Writes an object as a whole: that costs the server less than a patch. The metadata of `wanted` is what was seen of the
/// object; what others wrote into it since stays, and `amend` has the last word. An object that was made anew or is being
/// deleted is left alone: the watch brings it back.
pub async fn replace<K>(
    api: &Api<K>,
    mut wanted: K,
    amend: impl Fn(&mut ObjectMeta),
    manager: &str,
) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let name = wanted.name_any();
    let (uid, what, mut conflicts) = (wanted.uid(), full_name(&wanted), 0);
    loop {
        // The server keeps them.
        wanted.meta_mut().managed_fields = None;
        amend(wanted.meta_mut());
        match answered(api.replace(&name, &post_params(manager), &wanted).await) {
            Err(error) if status_code(&error) == Some(409) && conflicts < MAX_CONFLICTS => conflicts += 1,
            written => return written.context(|| format!("replace {what}")),
        }
        let live = api
            .get_metadata_opt(&name)
            .await
            .context(|| format!("read {what}"))?;
        let same = live.filter(|live| live.metadata.uid == uid && live.metadata.deletion_timestamp.is_none());
        let Some(live) = same else { return Ok(()) };
        *wanted.meta_mut() = live.metadata;
    }
}

/// Adds or removes one finalizer of an object as it was seen; returns whether that took a write. Finalizers are a list:
/// the version makes sure that no finalizer of another writer is lost, and a stale one is a conflict (409).
pub async fn set_finalizer<K>(
    api: &Api<K>,
    seen: &K,
    finalizer: &str,
    wanted: bool,
    manager: &str,
) -> Result<bool, Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let have = seen.finalizers();
    if have.iter().any(|known| known == finalizer) == wanted {
        return Ok(false);
    }
    let mut finalizers: Vec<&str> = have
        .iter()
        .map(String::as_str)
        .filter(|known| *known != finalizer)
        .collect();
    finalizers.extend(wanted.then_some(finalizer));
    let patch = serde_json::json!({"metadata": {
        "uid": seen.uid(), "resourceVersion": seen.resource_version(), "finalizers": finalizers,
    }});
    let patched = api
        .patch(&seen.name_any(), &patch_params(manager), &Patch::Merge(&patch))
        .await;
    match answered(patched) {
        // What is gone has no finalizer.
        Err(error) if status_code(&error) == Some(404) && !wanted => Ok(false),
        done => done
            .map(|()| true)
            .context(|| format!("change the finalizers of {}", full_name(seen))),
    }
}

/// Writes `status` if it differs from the status in `current`; returns whether it did.
///
/// The patch replaces each top-level field of the status that differs, and removes those that `status` lacks.
pub async fn ensure_status<K, S>(api: &Api<K>, current: &K, status: &S, manager: &str) -> Result<bool, Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
    S: Serialize,
{
    let have = to_value(current)?
        .get("status")
        .cloned()
        .unwrap_or_else(|| Value::Object(Map::new()));
    let want = to_value(status)?;
    let Some(patch) = replacement(&have, &want) else {
        return Ok(false);
    };
    let name = current.name_any();
    let params = patch_params(manager);
    let body = serde_json::json!({ "metadata": { "uid": current.uid() }, "status": patch });
    answered(api.patch_status(&name, &params, &Patch::Merge(&body)).await)
        .context(|| format!("report the status of {}", full_name(current)))?;
    Ok(true)
}

/// Deletes the object with that uid; that it is gone already is a success.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let only = uid.map(|uid| Preconditions {
        uid: Some(uid.into()),
        resource_version: None,
    });
    delete_if(api, name, only).await
}

/// Deletes an object as long as it is as it was seen. If it has changed since, its event brings it back to be decided anew.
pub async fn delete_as_seen<K>(api: &Api<K>, seen: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let same = Preconditions {
        uid: seen.uid(),
        resource_version: seen.resource_version(),
    };
    delete_if(api, &seen.name_any(), Some(same)).await
}

async fn delete_if<K>(api: &Api<K>, name: &str, only: Option<Preconditions>) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let mut params = DeleteParams::background();
    params.preconditions = only;
    match answered(api.delete(name, &params).await) {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        // Not the object that was meant.
        Err(kube::Error::Api(status)) if status.code == 409 && params.preconditions.is_some() => Ok(()),
        Err(error) => {
            let kind = K::kind(&K::DynamicType::default()).into_owned();
            Err(error).context(|| format!("delete {kind} {name}"))
        }
    }
}

/// Whether a write was done, whatever the answer shows. An answer that does not parse comes after the fact:
/// another writer may have put a value into the object that our types do not know, which must not stop what follows.
pub fn answered<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        // Not its words: they quote the answer.
        Err(kube::Error::SerdeError(_)) => {
            tracing::debug!("it was written, but the answer cannot be read");
            Ok(())
        }
        answer => answer.map(drop),
    }
}

/// An [`Api`] for one namespace.
pub fn namespaced<K>(client: &kube::Client, namespace: &str) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client.clone(), namespace)
}

fn post_params(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.into()),
        ..PostParams::default()
    }
}

fn patch_params(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.into()),
        ..PatchParams::default()
    }
}

fn full_name<K: Resource>(object: &K) -> String
where
    K::DynamicType: Default,
{
    format!("{} {}", K::kind(&K::DynamicType::default()), Name::of(object))
}

fn to_value<T: Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))
}
