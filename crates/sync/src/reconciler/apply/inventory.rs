//! The inventory of a sync: every object that it made and has not yet given up.

use std::collections::BTreeSet;

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::kpt::{ObjMetadata, ResourceGroup};
use writ_controller::{Error, error::Context as _};

use crate::{
    model::SyncId,
    reconciler::{object::Key, status},
};

/// Reads the inventory, which the manager has made.
pub async fn read(client: &Client, id: &SyncId) -> Result<BTreeSet<Key>, Error> {
    let group = Api::<ResourceGroup>::namespaced(client.clone(), &id.namespace)
        .get(&id.name)
        .await
        .context(|| format!("read ResourceGroup {}/{}", id.namespace, id.name))?;
    Ok(keys(&group))
}

/// The objects that an inventory lists.
pub fn keys(group: &ResourceGroup) -> BTreeSet<Key> {
    let listed = group.spec.resources.iter().flatten();
    listed.cloned().map(Key::from).collect()
}

/// Writes the inventory, and returns its version.
pub async fn write(client: &Client, id: &SyncId, keys: &BTreeSet<Key>) -> Result<String, Error> {
    let resources: Vec<ObjMetadata> = keys.iter().map(Key::inventory).collect();
    let params = PatchParams {
        field_manager: Some(status::FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let written = Api::<ResourceGroup>::namespaced(client.clone(), &id.namespace)
        .patch(
            &id.name,
            &params,
            &Patch::Merge(&json!({ "spec": { "resources": resources } })),
        )
        .await
        .context(|| format!("write ResourceGroup {}/{}", id.namespace, id.name))?;
    Ok(written.metadata.resource_version.unwrap_or_default())
}
