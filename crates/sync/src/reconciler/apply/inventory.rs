//! The inventory of a sync: a ResourceGroup that lists every object that the sync has created and not given up.

use std::collections::BTreeSet;

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::kpt::{ObjMetadata, ResourceGroup};
use writ_controller::{Error, Name, ObjectId, error::Context as _};

use super::REPORTER;
use crate::model::SyncId;

/// Reads the inventory. The manager creates it.
pub async fn read(client: &Client, id: &SyncId) -> Result<BTreeSet<ObjectId>, Error> {
    let group = Api::<ResourceGroup>::namespaced(client.clone(), &id.namespace)
        .get(&id.name)
        .await
        .context(|| format!("read ResourceGroup {}/{}", id.namespace, id.name))?;
    Ok(objects(&group))
}

/// The objects that an inventory lists.
pub fn objects(group: &ResourceGroup) -> BTreeSet<ObjectId> {
    let listed = group.spec.resources.iter().flatten();
    listed
        .map(|entry| ObjectId {
            group: entry.group.as_str().into(),
            kind: entry.kind.as_str().into(),
            name: Name::new(entry.namespace.as_str(), entry.name.as_str()),
        })
        .collect()
}

/// The entry of an object in an inventory.
pub fn entry(id: &ObjectId) -> ObjMetadata {
    ObjMetadata {
        name: id.name.name.to_string(),
        namespace: id.name.namespace.to_string(),
        group: id.group.to_string(),
        kind: id.kind.to_string(),
    }
}

/// Writes the inventory, and returns its resource version.
pub async fn write(client: &Client, id: &SyncId, objects: &BTreeSet<ObjectId>) -> Result<String, Error> {
    let resources: Vec<ObjMetadata> = objects.iter().map(entry).collect();
    let params = PatchParams {
        field_manager: Some(REPORTER.into()),
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
