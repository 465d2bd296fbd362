//! Writes sets, and what belongs to a set: its roles, its finalizer, and its labels once it is deleted.

use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_controller::{
    Cache, Error, Name,
    error::Context as _,
    write::{self, Ensure, answered},
};

use super::{
    membership::{REMOVE_LABELS_FINALIZER, asks_to_remove_labels},
    plan,
};
use crate::{MANAGER, caches::Caches};

/// Creates the sets `default` and `global`, and restores their selectors.
pub async fn write_standing_sets(client: &Client, sets: &Cache<ManagedClusterSet>) -> Result<(), Error> {
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    for wanted in plan::standing_sets() {
        let name = wanted.name_any();
        let Some(current) = sets.get(&Name::global(name.as_str())) else {
            let adopt = Ensure::new(&api, MANAGER).adopt(&|_| true);
            adopt.run(None, &wanted).await?;
            continue;
        };
        let selector = &wanted.spec.cluster_selector;
        if !plan::may_roll_back(&current) || current.spec.cluster_selector == *selector {
            continue;
        }
        // A merge would keep the fields of the other selector.
        let patch = json!([{"op": "replace", "path": "/spec/clusterSelector", "value": selector}]);
        let patch =
            serde_json::from_value(patch).map_err(|e| Error::Invalid(format!("the patch of a set: {e}")))?;
        let patch = Patch::<ManagedClusterSet>::Json(patch);
        let written = api.patch(&name, &PatchParams::default(), &patch).await;
        answered(written).context(|| format!("roll back ManagedClusterSet {name}"))?;
    }
    Ok(())
}

/// Writes the finalizer and the roles of a set.
pub async fn write_set(client: &Client, caches: &Caches, set: &ManagedClusterSet) -> Result<(), Error> {
    let sets: Api<ManagedClusterSet> = Api::all(client.clone());
    write::set_finalizer(
        &sets,
        set,
        REMOVE_LABELS_FINALIZER,
        asks_to_remove_labels(set),
        MANAGER,
    )
    .await?;
    let roles = Api::all(client.clone());
    for role in plan::roles(set) {
        let current = caches
            .cluster_roles()
            .get(&Name::global(role.name_any().as_str()));
        let adopt = Ensure::new(&roles, MANAGER).adopt(&|_| true);
        adopt.run(current.as_deref(), &role).await?;
    }
    Ok(())
}

/// Removes the label of a deleted set from its clusters, then the finalizer of the set.
pub async fn finish_set(client: &Client, set: &ManagedClusterSet) -> Result<(), Error> {
    if !set.finalizers().iter().any(|f| f == REMOVE_LABELS_FINALIZER) {
        return Ok(());
    }
    if let Some(key) = set.spec.key() {
        remove_label(client, key, &set.name_any()).await?;
    }
    let sets: Api<ManagedClusterSet> = Api::all(client.clone());
    write::set_finalizer(&sets, set, REMOVE_LABELS_FINALIZER, false, MANAGER).await?;
    Ok(())
}

/// Removes a label from all clusters that carry it. They are listed live, so that a cluster that joined a moment ago is
/// not left behind; each write names the version that was read, so that a label changed since is kept.
async fn remove_label(client: &Client, key: &str, value: &str) -> Result<(), Error> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    let labelled = api
        .list_metadata(&ListParams::default().labels(&format!("{key}={value}")))
        .await
        .context(|| format!("list the clusters with the label {key}={value}"))?;
    for cluster in labelled {
        let patch = json!({"metadata": {
            "uid": cluster.uid(), "resourceVersion": cluster.resource_version(), "labels": {key: null},
        }});
        let name = cluster.name_any();
        let written = api
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        answered(written).context(|| format!("remove the label {key} from ManagedCluster {name}"))?;
    }
    Ok(())
}
