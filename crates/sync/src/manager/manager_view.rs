//! What reconcilers ask the manager for, as they may not read it themselves.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use writ_api::kpt::ResourceGroup;
use writ_controller::{Error, ObjectId, error::Context as _};

use super::observe::Caches;
use crate::reconciler::{self, inventory};

/// The caches of the manager, and its client for what they do not show yet.
#[derive(Clone)]
pub struct ManagerView {
    client: Client,
    caches: Caches,
}

impl ManagerView {
    /// A view of these caches.
    pub fn new(client: Client, caches: Caches) -> Self {
        Self { client, caches }
    }

    /// Whether a namespace is terminating; `None` if it does not exist. If the cache does not show it, the API server is
    /// asked, as the cache may lag behind.
    pub async fn is_terminating(&self, namespace: &str) -> Result<Option<bool>, Error> {
        if let Some(is_terminating) = self.caches.is_terminating(namespace) {
            return Ok(Some(is_terminating));
        }
        let found = Api::<Namespace>::all(self.client.clone())
            .list_metadata(&ListParams::default().fields(&format!("metadata.name={namespace}")))
            .await
            .context(|| format!("look for the namespace {namespace}"))?;
        let found = found.items.first();
        Ok(found.map(|namespace| namespace.metadata.deletion_timestamp.is_some()))
    }

    async fn is_listed(&self, manager: &str, object: &ObjectId) -> Result<bool, Error> {
        let Some(id) = self.caches.sync_of_annotation(manager) else {
            return Ok(false);
        };
        let entry = inventory::entry(object);
        let lists = |group: &ResourceGroup| {
            group
                .spec
                .resources
                .iter()
                .flatten()
                .any(|listed| *listed == entry)
        };
        if self.caches.inventory(&id).is_some_and(|group| lists(&group)) {
            return Ok(true);
        }
        // The entry may have been written a moment ago, and the object after it.
        let live = Api::<ResourceGroup>::namespaced(self.client.clone(), &id.namespace)
            .get_opt(&id.name)
            .await
            .context(|| format!("read ResourceGroup {}/{}", id.namespace, id.name))?;
        Ok(live.is_some_and(|group| lists(&group)))
    }
}

impl reconciler::ManagerView for ManagerView {
    fn lists<'a>(&'a self, manager: &'a str, id: &'a ObjectId) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.is_listed(manager, id))
    }

    fn is_namespace_gone<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move { Ok(self.is_terminating(name).await?.is_none()) })
    }
}
