//! Writes only differences: create what is missing, patch what differs, leave the rest alone.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{Error, error::Context as _};

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

/// A merge patch that turns `current` into one that holds everything in `wanted`; `None` if it already does.
///
/// Only fields that `wanted` names are compared, so what others added (labels, finalizers, defaults) stays.
/// Lists are compared and replaced as a whole.
pub fn difference(current: &Value, wanted: &Value) -> Option<Value> {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => {
            let mut patch = Map::new();
            for (key, want) in wanted {
                match current.get(key) {
                    Some(have) => {
                        if let Some(change) = difference(have, want) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None if want.is_null() => {}
                    None => {
                        patch.insert(key.clone(), want.clone());
                    }
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (have, want) if have == want => None,
        (_, want) => Some(want.clone()),
    }
}

/// Makes the object hold everything in `wanted`: creates it, or patches what differs from `current`.
///
/// `current` is what a watch or a read showed; a stale one costs a request, never a wrong result. The patch
/// carries the uid, so that an object that was deleted and made again by somebody else is not changed.
pub async fn ensure<K>(api: &Api<K>, current: Option<&K>, wanted: &K, manager: &str) -> Result<Outcome, Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    let name = wanted.name_any();
    let Some(current) = current else {
        let params = PostParams {
            field_manager: Some(manager.into()),
            ..PostParams::default()
        };
        answered(api.create(&params, wanted).await)
            .context(|| format!("create {kind} {}", full_name(wanted, &name)))?;
        return Ok(Outcome::Created);
    };
    let have = to_value(current)?;
    let want = to_value(wanted)?;
    let Some(mut patch) = difference(&have, &want) else {
        return Ok(Outcome::Unchanged);
    };
    if let (Some(uid), Value::Object(patch)) = (current.uid(), &mut patch) {
        let metadata = patch
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("uid".into(), Value::String(uid));
        }
    }
    let params = PatchParams {
        field_manager: Some(manager.into()),
        ..PatchParams::default()
    };
    answered(api.patch(&name, &params, &Patch::Merge(&patch)).await)
        .context(|| format!("change {kind} {}", full_name(wanted, &name)))?;
    Ok(Outcome::Changed)
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
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    let name = current.name_any();
    let params = PatchParams {
        field_manager: Some(manager.into()),
        ..PatchParams::default()
    };
    let body = serde_json::json!({ "metadata": { "uid": current.uid() }, "status": patch });
    answered(api.patch_status(&name, &params, &Patch::Merge(&body)).await)
        .context(|| format!("report the status of {kind} {}", full_name(current, &name)))?;
    Ok(true)
}

/// A merge patch that makes `have` equal to `want`, fields that `want` lacks removed; `None` if they are equal.
pub fn replacement(have: &Value, want: &Value) -> Option<Value> {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            let mut patch = Map::new();
            for key in have.keys().filter(|key| !want.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, wanted) in want {
                match have.get(key) {
                    Some(current) => {
                        if let Some(change) = replacement(current, wanted) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None => {
                        patch.insert(key.clone(), wanted.clone());
                    }
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (have, want) if have == want => None,
        (_, want) => Some(want.clone()),
    }
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

/// Deletes an object as long as it is as it was seen. One that has changed since is left for whoever watches it to decide
/// anew.
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

/// Whether a write was done, whatever the answer shows. An answer that cannot be read comes after the fact: somebody
/// else may have put a value into the object that our types do not know, and must not keep us from what follows.
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

fn full_name<K: Resource>(object: &K, name: &str) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn to_value<T: Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_leaves_what_others_added() {
        let current =
            json!({"metadata": {"labels": {"a": "1", "theirs": "x"}}, "data": {"k": "v"}, "list": [1]});
        assert_eq!(
            difference(
                &current,
                &json!({"metadata": {"labels": {"a": "1"}}, "list": [1]})
            ),
            None
        );
        assert_eq!(
            difference(
                &current,
                &json!({"metadata": {"labels": {"a": "2"}}, "list": [1, 2]})
            ),
            Some(json!({"metadata": {"labels": {"a": "2"}}, "list": [1, 2]}))
        );
        assert_eq!(difference(&json!({}), &json!({"a": null})), None);
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_read_is_no_failure() {
        use k8s_openapi::api::apps::v1::Deployment;
        use kube::{Client, client::Body};

        let server = tower::service_fn(|_: http::Request<Body>| async {
            let answer = json!({"metadata": {"name": "d"}, "status": {"replicas": 5_000_000_000_i64}});
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                answer.to_string().into_bytes(),
            )))
        });
        let api: Api<Deployment> = Api::default_namespaced(Client::new(server, "default"));
        assert!(api.get("d").await.is_err(), "a reader needs the answer");
        let mut wanted = Deployment::default();
        wanted.metadata.name = Some("d".into());
        let current = wanted.clone();
        assert_eq!(
            ensure(&api, None, &wanted, "test").await.unwrap(),
            Outcome::Created
        );
        wanted.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let changed = ensure(&api, Some(&current), &wanted, "test").await.unwrap();
        assert_eq!(changed, Outcome::Changed);
        assert!(
            ensure_status(&api, &current, &json!({"replicas": 1}), "test")
                .await
                .unwrap()
        );
        delete(&api, "d", None).await.unwrap();
    }

    #[test]
    fn a_replacement_removes_what_is_not_wanted() {
        let have = json!({"a": 1, "b": {"c": 2, "d": 3}});
        assert_eq!(replacement(&have, &have), None);
        assert_eq!(
            replacement(&have, &json!({"b": {"c": 2}})),
            Some(json!({"a": null, "b": {"d": null}}))
        );
    }
}
