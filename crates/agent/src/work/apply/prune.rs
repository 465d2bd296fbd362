//! Deletes the objects that a work dropped.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use writ_api::work::{AppliedManifestWork, AppliedResource};
use writ_controller::{Error, Name};

use super::{
    delete::{Claim, Deletion, delete},
    pass::CONCURRENCY,
};
use crate::owner::Owner;
use crate::work::{
    model::{Key, OwnedObject},
    state::Agent,
};

/// A dropped object that still exists, or the error of its deletion.
pub type StillPresent = (AppliedResource, Result<Deletion, Error>);

impl Agent {
    /// The recorded objects that are known to belong to the work.
    pub async fn owned_objects(
        &self,
        key: &Key,
        applied: &AppliedManifestWork,
        records: &[AppliedResource],
    ) -> BTreeMap<AppliedResource, OwnedObject> {
        let owner_uid = applied.uid().unwrap_or_default();
        let mut owned = BTreeMap::new();
        for record in records {
            let Ok(Some(kind)) = self.recorded_kind(record).await else {
                continue;
            };
            let name = Name::new(record.namespace.as_str(), record.name.as_str());
            let object = self.drift.owned_object(key, &kind.resource, &name, &owner_uid);
            owned.extend(object.map(|object| (record.clone(), object)));
        }
        owned
    }

    /// Deletes dropped objects. Returns those that still exist.
    pub async fn prune(
        &self,
        dropped: Vec<AppliedResource>,
        owner: &Owner,
        live_objects: &BTreeMap<AppliedResource, OwnedObject>,
    ) -> Vec<StillPresent> {
        stream::iter(dropped)
            .map(|record| async move {
                let claim = live_objects.get(&record).map_or(Claim::Reference, Claim::Owned);
                let deletion = delete(self, &record, owner, claim).await;
                (record, deletion)
            })
            .buffer_unordered(CONCURRENCY)
            .filter(|(_, deletion)| std::future::ready(!matches!(deletion, Ok(Deletion::Done))))
            .collect()
            .await
    }
}
