//! From a kind to the resource that serves it, remembered per group and version.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use writ_controller::{Error, error::Context as _};
use writ_runtime::segment;

/// How long the server may take to say what a group serves. Another server may stand behind it, and be away.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How long a group that did not answer is not asked again.
const SILENT: Duration = Duration::from_secs(2);

/// A kind, and how it is served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Kind {
    /// Reads what a CustomResourceDefinition will serve for this kind; `None` if it is not about it, or is none that
    /// the server would take: what it says becomes part of a URL.
    pub fn from_crd(manifest: &Value, gvk: &GroupVersionKind) -> Option<Self> {
        let spec = manifest.get("spec")?;
        let names = spec.get("names")?;
        let plural = names.get("plural")?.as_str()?;
        let full_name = format!("{plural}.{}", gvk.group);
        let plain = segment::is_label(plural)
            && segment::is_label(&gvk.version)
            && gvk.group.split('.').all(segment::is_label);
        if !plain
            || manifest.pointer("/metadata/name")? != full_name.as_str()
            || !manifest
                .get("apiVersion")?
                .as_str()?
                .starts_with("apiextensions.k8s.io/")
            || manifest.get("kind")? != "CustomResourceDefinition"
            || spec.get("group")? != gvk.group.as_str()
            || names.get("kind")? != gvk.kind.as_str()
        {
            return None;
        }
        let served = spec.get("versions")?.as_array()?.iter().any(|version| {
            version.get("name").and_then(Value::as_str) == Some(&gvk.version)
                && version.get("served").and_then(Value::as_bool) == Some(true)
        });
        served.then(|| Self {
            resource: ApiResource::from_gvk_with_plural(gvk, plural),
            namespaced: spec.get("scope").and_then(Value::as_str) == Some("Namespaced"),
        })
    }
}

/// The kinds of one group and version, by name.
type Served = Arc<HashMap<String, Arc<Kind>>>;

/// Knows the kinds of one API server.
pub struct Mapper {
    client: Client,
    known: Mutex<HashMap<String, Served>>,
    /// The groups that did not answer, with their version, and why.
    silent: Mutex<HashMap<String, (Instant, String)>>,
}

impl Mapper {
    /// A mapper that knows nothing yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
            silent: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Served>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resource of a kind; `None` if the server does not serve it. An unknown kind is asked for every time.
    pub async fn find(&self, gvk: &GroupVersionKind) -> Result<Option<Arc<Kind>>, Error> {
        let api_version = gvk.api_version();
        if let Some(kind) = self
            .lock()
            .get(&api_version)
            .and_then(|kinds| kinds.get(&gvk.kind))
        {
            return Ok(Some(kind.clone()));
        }
        let served = self.discover(&gvk.group, &gvk.version).await?;
        let found = served.get(&gvk.kind).cloned();
        self.lock().insert(api_version, served);
        Ok(found)
    }

    /// The kind that serves a resource in this group and version.
    pub async fn find_resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<Option<Arc<Kind>>, Error> {
        let api_version = GroupVersionKind::gvk(group, version, "").api_version();
        let by_plural = |served: &Served| {
            served
                .values()
                .find(|kind| kind.resource.plural == resource)
                .cloned()
        };
        if let Some(kind) = self.lock().get(&api_version).and_then(by_plural) {
            return Ok(Some(kind));
        }
        let served = self.discover(group, version).await?;
        let found = by_plural(&served);
        self.lock().insert(api_version, served);
        Ok(found)
    }

    /// Forgets the kinds of a group, because its definitions changed.
    pub fn forget(&self, group: &str) {
        self.lock().retain(|api_version, _| {
            let known = api_version.rsplit_once('/').map_or("", |(group, _)| group);
            known != group
        });
    }

    /// Asks the server, unless it was just asked in vain: every object of a group would wait for its answer.
    async fn discover(&self, group: &str, version: &str) -> Result<Served, Error> {
        let api_version = GroupVersionKind::gvk(group, version, "").api_version();
        let silent = || self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let just = silent().get(&api_version).cloned();
        if let Some((_, why)) = just.filter(|(since, _)| since.elapsed() < SILENT) {
            return Err(Error::Invalid(why));
        }
        let asked = tokio::time::timeout(ANSWERS_WITHIN, self.ask(group, version, &api_version)).await;
        let answer = asked.unwrap_or_else(|_| {
            let seconds = ANSWERS_WITHIN.as_secs();
            Err(Error::Invalid(format!(
                "discover {api_version}: no answer within {seconds} s"
            )))
        });
        match &answer {
            Ok(_) => silent().remove(&api_version),
            Err(error) => silent().insert(api_version, (Instant::now(), error.to_string())),
        };
        answer
    }

    async fn ask(&self, group: &str, version: &str, api_version: &str) -> Result<Served, Error> {
        let listed = if group.is_empty() {
            self.client.list_core_api_resources(version).await
        } else {
            self.client.list_api_group_resources(api_version).await
        };
        let list = match listed {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Arc::default()),
            other => other.context(|| format!("discover {api_version}"))?,
        };
        Ok(Arc::new(
            list.resources
                .into_iter()
                .filter(|resource| !resource.name.contains('/'))
                .map(|resource| {
                    let gvk = GroupVersionKind::gvk(group, version, &resource.kind);
                    let kind = Kind {
                        resource: ApiResource::from_gvk_with_plural(&gvk, &resource.name),
                        namespaced: resource.namespaced,
                    };
                    (resource.kind, Arc::new(kind))
                })
                .collect(),
        ))
    }
}
