//! Which kinds the API server knows. The same for everybody, so all reconcilers share one copy.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, core::ApiResource};
use writ_runtime::{Error, error::Context as _};

/// One kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// How the API server is asked for it.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

type Known = HashMap<(String, String), Arc<HashMap<String, Kind>>>;

/// What was asked so far. Cheap to clone.
#[derive(Clone, Default)]
pub struct Discovery {
    known: Arc<Mutex<Known>>,
}

impl Discovery {
    /// The kind, if the API server knows it. A group version is asked for again only for a kind that it lacked.
    pub async fn resolve(
        &self,
        client: &Client,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, Error> {
        if let Some(found) = self.cached(group, version, kind) {
            return Ok(Some(found));
        }
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let answer = if group.is_empty() {
            client.list_core_api_resources(version).await
        } else {
            client.list_api_group_resources(&api_version).await
        };
        let list = match answer {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error).context(|| format!("ask for the kinds of {api_version}")),
        };
        let kinds = Arc::new(kinds(&list, group, version));
        let found = kinds.get(kind).cloned();
        self.lock().insert((group.to_owned(), version.to_owned()), kinds);
        Ok(found)
    }

    /// The kind in any version, for an object of an inventory, which has none.
    pub async fn resolve_any(&self, client: &Client, group: &str, kind: &str) -> Result<Option<Kind>, Error> {
        if group.is_empty() {
            return self.resolve(client, "", "v1", kind).await;
        }
        let cached = self
            .lock()
            .iter()
            .filter(|((known, _), _)| known == group)
            .find_map(|(_, kinds)| kinds.get(kind).cloned());
        if cached.is_some() {
            return Ok(cached);
        }
        let groups = client
            .list_api_groups()
            .await
            .context(|| "ask for the API groups".to_owned())?;
        let versions = groups
            .groups
            .into_iter()
            .filter(|known| known.name == group)
            .flat_map(|known| known.versions);
        for version in versions {
            if let Some(found) = self.resolve(client, group, &version.version, kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Forgets a group version: a kind of it went away.
    pub fn forget(&self, group: &str, version: &str) {
        self.lock().remove(&(group.to_owned(), version.to_owned()));
    }

    fn cached(&self, group: &str, version: &str, kind: &str) -> Option<Kind> {
        self.lock()
            .get(&(group.to_owned(), version.to_owned()))?
            .get(kind)
            .cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kinds(list: &APIResourceList, group: &str, version: &str) -> HashMap<String, Kind> {
    list.resources
        .iter()
        // Subresources have a slash in their name.
        .filter(|resource| !resource.name.contains('/'))
        .map(|resource| {
            let api_version = if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            };
            let kind = Kind {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version,
                    kind: resource.kind.clone(),
                    plural: resource.name.clone(),
                },
                namespaced: resource.namespaced,
            };
            (resource.kind.clone(), kind)
        })
        .collect()
}
