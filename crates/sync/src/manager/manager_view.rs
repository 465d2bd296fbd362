//! What reconcilers ask the manager for, as they may not read it themselves.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use writ_api::kpt::ResourceGroup;
use writ_controller::{Error, error::Context as _};

use super::observe::Stores;
use writ_controller::ObjectId;

use crate::reconciler::{ManagerView, inventory};

/// The manager's copies, and its client for what they may not have yet.
#[derive(Clone)]
pub struct Overview {
    client: Client,
    stores: Stores,
}

impl Overview {
    /// Of these copies.
    pub fn new(client: Client, stores: Stores) -> Self {
        Self { client, stores }
    }

    /// Whether a namespace is going away; nothing if there is none. A copy that does not know it is not believed.
    pub async fn terminating(&self, namespace: &str) -> Result<Option<bool>, Error> {
        if let Some(goes) = self.stores.terminating(namespace) {
            return Ok(Some(goes));
        }
        let found = Api::<Namespace>::all(self.client.clone())
            .list_metadata(&ListParams::default().fields(&format!("metadata.name={namespace}")))
            .await
            .context(|| format!("look for the namespace {namespace}"))?;
        let there = found.items.first();
        Ok(there.map(|namespace| namespace.metadata.deletion_timestamp.is_some()))
    }

    async fn find_in_inventory(&self, manager: &str, id: &ObjectId) -> Result<bool, Error> {
        let Some(sync) = self.stores.sync_called(manager) else {
            return Ok(false);
        };
        let lists = |group: &ResourceGroup| {
            let mut all = group.spec.resources.iter().flatten();
            all.any(|object| *object == inventory::entry(id))
        };
        if self.stores.inventory(&sync).is_some_and(|group| lists(&group)) {
            return Ok(true);
        }
        // It may have been written a moment ago, and the object after it.
        let live = Api::<ResourceGroup>::namespaced(self.client.clone(), &sync.namespace)
            .get_opt(&sync.name)
            .await
            .context(|| format!("read ResourceGroup {}/{}", sync.namespace, sync.name))?;
        Ok(live.is_some_and(|group| lists(&group)))
    }
}

impl ManagerView for Overview {
    fn lists<'a>(&'a self, manager: &'a str, id: &'a ObjectId) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.find_in_inventory(manager, id))
    }

    fn is_namespace_gone<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move { Ok(self.terminating(name).await?.is_none()) })
    }
}
