//! Writes and deletes the works of a set.

use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::work::{ManifestWork, ManifestWorkReplicaSet};
use writ_controller::{Error, error::Context as _, write};

use super::plan;
use crate::MANAGER;

/// Creates the work, or replaces its spec if it is the set's own.
pub async fn write(client: Client, set: &ManifestWorkReplicaSet, wanted: &ManifestWork) -> Result<(), Error> {
    let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let api: Api<ManifestWork> = Api::namespaced(client, &namespace);
    let what = || format!("write ManifestWork {namespace}/{name}");
    let Some(current) = api.get_opt(&name).await.context(what)? else {
        return write::ensure(&api, None, wanted, MANAGER).await.map(drop);
    };
    if let Some(why) = plan::stranger(set, &current) {
        return Err(Error::Invalid(why));
    }
    let have = json!({"spec": current.spec, "labels": current.labels()});
    let want = json!({"spec": wanted.spec, "labels": wanted.labels()});
    let Some(mut patch) = write::replacement(&have, &want) else {
        return Ok(());
    };
    // Labels of others stay.
    if let Some(map) = patch.as_object_mut() {
        map.remove("labels");
        map.insert(
            "metadata".into(),
            json!({"uid": current.uid(), "resourceVersion": current.resource_version(), "labels": wanted.labels()}),
        );
    }
    api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Merge(&patch))
        .await
        .context(what)?;
    Ok(())
}

/// Deletes what can be deleted; returns why the others could not.
pub async fn delete(client: Client, works: &[ManifestWork]) -> Vec<Error> {
    let mut errors = Vec::new();
    for work in works {
        let (namespace, name) = (work.namespace().unwrap_or_default(), work.name_any());
        let api: Api<ManifestWork> = Api::namespaced(client.clone(), &namespace);
        let deleted = write::delete(&api, &name, work.uid().as_deref()).await;
        errors.extend(deleted.err().map(|error| match error {
            // The same name is in many clusters.
            Error::Api { source, .. } => Error::Api {
                what: format!("delete ManifestWork {namespace}/{name}"),
                source,
            },
            other => other,
        }));
    }
    errors
}

/// One error for several.
pub fn joined(mut errors: Vec<Error>) -> Option<Error> {
    if errors.len() < 2 {
        return errors.pop();
    }
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Some(Error::io(
        format!("{} works cannot be written or deleted", words.len()),
        words.join("; "),
    ))
}
