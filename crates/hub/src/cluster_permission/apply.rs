//! Writes the works that differ, then deletes the ones that are not wanted.

use kube::{Api, Client, ResourceExt as _};
use writ_api::{
    cluster::ManagedCluster,
    work::{MANIFEST_WORK_FINALIZER, ManifestWork},
};
use writ_controller::{Error, error::Context as _, write};

use super::{
    model::{Observation, Plan, Refused},
    observe::is_available,
};
use crate::MANAGER;

/// Writes the plan. Returns the works that the hub refused, and the error to retry for.
pub async fn apply(client: &Client, seen: &Observation, plan: &Plan) -> (Refused, Option<Error>) {
    let (mut refused, mut failed) = (Refused::new(), None);
    for (number, wanted) in &plan.works {
        let current = seen.works.get(number).map(|work| &**work);
        let Err(error) = ensure_work(client, current, wanted, seen.cluster.as_deref()).await else {
            continue;
        };
        if error.is_code(409) {
            // The cache is behind; the watch brings the permission back.
            failed = Some(error);
            continue;
        }
        refused.insert(*number, error.to_string());
        if let Some(current) = current.filter(|_| is_refusal(&error)) {
            let reduced = reduce(client, current, wanted).await;
            failed = reduced.err().or(failed);
        }
        failed = Some(failed.unwrap_or(error));
    }
    for work in plan.delete.iter().filter_map(|number| seen.works.get(number)) {
        failed = delete_work(client, work).await.err().or(failed);
    }
    (refused, failed)
}

/// Deletes a work, unless it is being deleted already.
pub async fn delete_work(client: &Client, work: &ManifestWork) -> Result<(), Error> {
    if work.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let api: Api<ManifestWork> = write::namespaced(client, &work.namespace().unwrap_or_default());
    write::delete(&api, &work.name_any(), work.metadata.uid.as_deref()).await
}

async fn ensure_work(
    client: &Client,
    current: Option<&ManifestWork>,
    wanted: &ManifestWork,
    cluster: Option<&ManagedCluster>,
) -> Result<(), Error> {
    let api: Api<ManifestWork> = write::namespaced(client, &wanted.namespace().unwrap_or_default());
    let Some(current) = current else {
        let mut wanted = wanted.clone();
        if is_available(cluster) && cluster.and_then(|cluster| cluster.agent_runs("work")) == Some(true) {
            // The agent would add it before it applies anything: one write less to wait for.
            wanted.finalizers_mut().push(MANIFEST_WORK_FINALIZER.to_owned());
        }
        return write::create(&api, &wanted, MANAGER).await;
    };
    if current.metadata.deletion_timestamp.is_some() {
        // It is made again when it is gone, which the watch says.
        return Ok(());
    }
    let owners = wanted.owner_references();
    let has_owners = owners
        .iter()
        .all(|owner| current.owner_references().contains(owner));
    if current.spec == wanted.spec && has_owners {
        return Ok(());
    }
    let whole = ManifestWork {
        metadata: current.metadata.clone(),
        spec: wanted.spec.clone(),
        status: None,
    };
    let set_owners = |metadata: &mut kube::core::ObjectMeta| {
        if !has_owners {
            metadata.owner_references = Some(owners.to_vec());
        }
    };
    write::replace(&api, whole, set_owners, MANAGER).await
}

/// The hub refuses the new content: what the old one granted and the new one does not is still revoked.
async fn reduce(client: &Client, current: &ManifestWork, wanted: &ManifestWork) -> Result<(), Error> {
    let (namespace, name) = (current.namespace().unwrap_or_default(), current.name_any());
    let api: Api<ManifestWork> = write::namespaced(client, &namespace);
    // The cache holds no manifests of a work whose owner reference was removed.
    let live = api
        .get_opt(&name)
        .await
        .context(|| format!("read ManifestWork {namespace}/{name}"))?;
    let Some(live) = live.filter(|live| live.metadata.uid == current.metadata.uid) else {
        return Ok(());
    };
    let mut kept = live.clone();
    kept.metadata
        .owner_references
        .clone_from(&wanted.metadata.owner_references);
    let manifests = &mut kept.spec.workload.manifests;
    manifests.retain(|manifest| wanted.spec.workload.manifests.contains(manifest));
    if manifests.is_empty() {
        return delete_work(client, &live).await;
    }
    let revokes = manifests.len() < live.spec.workload.manifests.len();
    match ensure_work(client, Some(&live), &kept, None).await {
        // Not even less is accepted: what must go goes, with what could have stayed.
        Err(error) if revokes && is_refusal(&error) => delete_work(client, &live).await,
        other => other,
    }
}

/// Whether the hub refuses what is written, and would refuse it again.
fn is_refusal(error: &Error) -> bool {
    [400, 403, 413, 422].iter().any(|code| error.is_code(*code))
}
