//! The works of permissions that do not exist any more. The garbage collector would delete them too, some time later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{Api, Client};
use writ_api::{rbac::ClusterPermission, work::ManifestWork};
use writ_controller::{Error, Name, cache::Change, error::Context as _, write};

use super::apply::delete_work;
use crate::caches::owning_permission;

/// The uids of permissions whose end the watch has shown, until their works are deleted.
#[derive(Default)]
pub struct Ended(Mutex<HashMap<Name, String>>);

impl Ended {
    /// Notes that a permission ended, or exists again.
    pub fn note(&self, change: &Change<'_, ClusterPermission>) {
        if change.new.is_some() {
            self.lock().remove(&change.name);
        } else if let Some(uid) = change.old().and_then(|old| old.metadata.uid.clone()) {
            self.lock().insert(change.name.clone(), uid);
        }
    }

    /// Deletes the works of a permission that is not in the cache. The works of one that was seen to end go without another
    /// read, as it does not come back.
    pub async fn delete_works(
        &self,
        client: &Client,
        name: &Name,
        owned: &[Arc<ManifestWork>],
    ) -> Result<(), Error> {
        let ended = self.lock().remove(name);
        let stays = |work: &&Arc<ManifestWork>| work.metadata.deletion_timestamp.is_none();
        let (its, others): (Vec<_>, Vec<_>) = owned
            .iter()
            .filter(stays)
            .partition(|work| ended.is_some() && owner_uid(work) == ended.as_deref());
        for work in its {
            delete_work(client, work).await?;
        }
        if others.is_empty() {
            return Ok(());
        }
        delete_former_works(client, name, owned).await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether any of these works belongs to an earlier permission of the same name.
pub fn has_former_works(permission: &ClusterPermission, owned: &[Arc<ManifestWork>]) -> bool {
    let uid = permission.metadata.uid.as_deref();
    owned.iter().any(|work| owner_uid(work) != uid)
}

/// Deletes the works of earlier permissions of this name.
pub async fn delete_former_works(
    client: &Client,
    name: &Name,
    owned: &[Arc<ManifestWork>],
) -> Result<(), Error> {
    let api: Api<ClusterPermission> = write::namespaced(client, &name.namespace);
    // The cache may be behind, and the works of the permission that exists must stay.
    let live = api
        .get_metadata_opt(&name.name)
        .await
        .context(|| format!("read ClusterPermission {name}"))?;
    let uid = live.and_then(|live| live.metadata.uid);
    for work in owned.iter().filter(|work| owner_uid(work) != uid.as_deref()) {
        delete_work(client, work).await?;
    }
    Ok(())
}

fn owner_uid(work: &ManifestWork) -> Option<&str> {
    owning_permission(work).map(|owner| owner.uid.as_str())
}
