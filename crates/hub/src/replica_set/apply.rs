//! Writes and deletes the works of a set.

use std::{collections::BTreeSet, time::Instant};

use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::work::{ManifestWork, ManifestWorkReplicaSet};
use writ_controller::{Error, Name, error::Context as _, write};

use super::{
    failures::AllFailures,
    model::{Attempts, Plan},
    ownership::foreign,
};
use crate::MANAGER;

/// The outcome of writing the works of a plan.
#[derive(Default)]
pub struct Written {
    /// The clusters whose work was written.
    pub clusters: BTreeSet<String>,
    /// Why works could not be written.
    pub errors: Vec<Error>,
}

/// Writes the works of a plan. A failure may make room for another cluster, or be one too many, so the rest is planned
/// again after it; each cluster is tried once.
pub async fn write_works(
    client: &Client,
    set: &ManifestWorkReplicaSet,
    plan: &mut Plan,
    failures: &AllFailures,
    replan: &impl Fn(Attempts<'_>) -> Plan,
) -> Result<Written, Error> {
    let key = Name::of(set);
    let (mut done, mut failed) = (Written::default(), BTreeSet::new());
    loop {
        let before = done.errors.len();
        for wanted in &plan.apply {
            let cluster = wanted.namespace().unwrap_or_default();
            if done.clusters.contains(&cluster) || failed.contains(&cluster) {
                continue;
            }
            match write_work(client, set, wanted).await {
                Ok(()) => {
                    failures.of(&key, |known| known.clear(&cluster));
                    done.clusters.insert(cluster);
                }
                // An unreachable API server is not a failure of a cluster.
                Err(error) if error.reason() == "Unreachable" => return Err(error),
                Err(error) => {
                    failures.of(&key, |known| {
                        known.record(&cluster, error.to_string(), Instant::now());
                    });
                    failed.insert(cluster);
                    done.errors.push(error);
                }
            }
        }
        if done.errors.len() == before {
            return Ok(done);
        }
        *plan = replan(Attempts {
            written: &done.clusters,
            ..Attempts::default()
        });
    }
}

/// Creates the work, or replaces its spec if it was made for the set.
async fn write_work(
    client: &Client,
    set: &ManifestWorkReplicaSet,
    wanted: &ManifestWork,
) -> Result<(), Error> {
    let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let api: Api<ManifestWork> = write::namespaced(client, &namespace);
    let what = || format!("write ManifestWork {namespace}/{name}");
    let Some(current) = api.get_opt(&name).await.context(what)? else {
        return write::ensure(&api, None, wanted, MANAGER).await.map(drop);
    };
    if let Some(why) = foreign(set, &current) {
        return Err(Error::Invalid(why));
    }
    let have = json!({"spec": current.spec, "labels": current.labels()});
    let want = json!({"spec": wanted.spec, "labels": wanted.labels()});
    let Some(mut patch) = write::replacement(&have, &want) else {
        return Ok(());
    };
    // Labels of other writers stay.
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

/// Deletes works; returns why some could not be deleted.
pub async fn delete_works(client: &Client, works: &[ManifestWork]) -> Vec<Error> {
    let mut errors = Vec::new();
    for work in works {
        let (namespace, name) = (work.namespace().unwrap_or_default(), work.name_any());
        let api: Api<ManifestWork> = write::namespaced(client, &namespace);
        let deleted = write::delete(&api, &name, work.uid().as_deref()).await;
        errors.extend(deleted.err().map(|error| match error {
            // The works of a set share one name.
            Error::Api { source, .. } => Error::Api {
                what: format!("delete ManifestWork {namespace}/{name}"),
                source,
            },
            other => other,
        }));
    }
    errors
}

/// One error for all, or success if there is none.
pub fn combined(errors: impl IntoIterator<Item = Error>) -> Result<(), Error> {
    let mut errors: Vec<Error> = errors.into_iter().collect();
    if errors.len() < 2 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(Error::io(
        format!("{} works cannot be written or deleted", messages.len()),
        messages.join("; "),
    ))
}
