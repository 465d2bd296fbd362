//! Which kinds the API server knows. The same for everybody, so all reconcilers share one copy.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, core::ApiResource};
use writ_controller::{Error, error::Context as _};

/// How long it is believed that there is no such kind: thousands of objects ask for the same one.
const BELIEVED: Duration = Duration::from_millis(500);

/// How many group versions are remembered with those that are not served, of which anybody can make up more.
const MAX_KNOWN: usize = 1000;

/// One kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// How the API server is asked for it.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

type Kinds = HashMap<String, Kind>;
/// Every group with each of its versions.
type Groups = Arc<Vec<(String, String)>>;

/// What a group version was last found to have.
#[derive(Default)]
struct Answer {
    kinds: Arc<Kinds>,
    /// Why it could not be asked for, the last time.
    failed: Option<Arc<Error>>,
    /// When that was.
    at: Option<Instant>,
}

impl Answer {
    /// What it says of a kind, unless the API server is to be asked again: a kind is believed until it is forgotten,
    /// that there is none only for a moment.
    fn tells(&self, kind: &str) -> Option<Result<Option<Kind>, Arc<Error>>> {
        if let Some(found) = self.kinds.get(kind) {
            return Some(Ok(Some(found.clone())));
        }
        let fresh = self.at.is_some_and(|at| at.elapsed() < BELIEVED);
        fresh.then(|| self.failed.clone().map_or(Ok(None), Err))
    }
}

#[derive(Default)]
struct Known {
    versions: HashMap<(String, String), Answer>,
    /// The groups, and when they were asked for.
    groups: Option<(Groups, Instant)>,
}

/// What was asked so far. Cheap to clone.
#[derive(Clone, Default)]
pub struct Discovery {
    known: Arc<Mutex<Known>>,
}

impl Discovery {
    /// The kind, if the API server knows it.
    pub async fn resolve(
        &self,
        client: &Client,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, Arc<Error>> {
        let place = (group.to_owned(), version.to_owned());
        let told = self
            .lock()
            .versions
            .get(&place)
            .and_then(|answer| answer.tells(kind));
        if let Some(told) = told {
            return told;
        }
        let asked = ask(client, group, version).await;
        let mut known = self.lock();
        if known.versions.len() >= MAX_KNOWN {
            known.versions.retain(|_, answer| !answer.kinds.is_empty());
        }
        let answer = known.versions.entry(place).or_default();
        match asked {
            Ok(kinds) => {
                *answer = Answer {
                    kinds: Arc::new(kinds),
                    failed: None,
                    at: Some(Instant::now()),
                };
                Ok(answer.kinds.get(kind).cloned())
            }
            Err(error) => {
                let error = Arc::new(error);
                // What one account is told is not everybody's affair.
                if !matches!(error.code(), Some(401 | 403)) {
                    answer.failed = Some(error.clone());
                    answer.at = Some(Instant::now());
                }
                Err(error)
            }
        }
    }

    /// The kind in any version, for an object of an inventory, which has none.
    pub async fn resolve_any(
        &self,
        client: &Client,
        group: &str,
        kind: &str,
    ) -> Result<Option<Kind>, Arc<Error>> {
        if group.is_empty() {
            return self.resolve(client, "", "v1", kind).await;
        }
        let cached = self
            .lock()
            .versions
            .iter()
            .filter(|((known, _), _)| known == group)
            .find_map(|(_, answer)| answer.kinds.get(kind).cloned());
        if cached.is_some() {
            return Ok(cached);
        }
        let groups = self.groups(client).await?;
        for (_, version) in groups.iter().filter(|(known, _)| known == group) {
            if let Some(found) = self.resolve(client, group, version, kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn groups(&self, client: &Client) -> Result<Groups, Arc<Error>> {
        if let Some((groups, at)) = &self.lock().groups
            && at.elapsed() < BELIEVED
        {
            return Ok(groups.clone());
        }
        let listed = client
            .list_api_groups()
            .await
            .context(|| "ask for the API groups".to_owned())?;
        let versions = listed.groups.into_iter().flat_map(|group| {
            let name = group.name;
            let each = group.versions.into_iter();
            each.map(move |version| (name.clone(), version.version))
        });
        let groups: Groups = Arc::new(versions.collect());
        self.lock().groups = Some((groups.clone(), Instant::now()));
        Ok(groups)
    }

    /// Forgets a group version: a kind of it went away.
    pub fn forget(&self, group: &str, version: &str) {
        let mut known = self.lock();
        known.versions.remove(&(group.to_owned(), version.to_owned()));
        known.groups = None;
    }

    /// What was not there may be by now: definitions were just made.
    pub fn doubt(&self) {
        let mut known = self.lock();
        for answer in known.versions.values_mut() {
            answer.at = None;
        }
        known.groups = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the kinds of a group version; it has none if there is no such version.
async fn ask(client: &Client, group: &str, version: &str) -> Result<Kinds, Error> {
    let api_version = api_version(group, version);
    let answer = if group.is_empty() {
        client.list_core_api_resources(version).await
    } else {
        client.list_api_group_resources(&api_version).await
    };
    match answer {
        Ok(list) => Ok(kinds(&list, group, version)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Kinds::new()),
        Err(error) => Err(error).context(|| format!("ask for the kinds of {api_version}")),
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn kinds(list: &APIResourceList, group: &str, version: &str) -> Kinds {
    list.resources
        .iter()
        // Subresources have a slash in their name.
        .filter(|resource| !resource.name.contains('/'))
        .map(|resource| {
            let kind = Kind {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: api_version(group, version),
                    kind: resource.kind.clone(),
                    plural: resource.name.clone(),
                },
                namespaced: resource.namespaced,
            };
            (resource.kind.clone(), kind)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Answers with this code, or with a list that has one kind; counts the requests.
    fn server() -> (Client, Arc<AtomicU16>, Arc<AtomicUsize>) {
        let (code, asked) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicUsize::new(0)));
        let (says, counts) = (code.clone(), asked.clone());
        let service = tower::service_fn(move |_: Request<Body>| {
            counts.fetch_add(1, Ordering::SeqCst);
            let code = says.load(Ordering::SeqCst);
            let list = json!({ "kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [
                { "name": "ones", "singularName": "one", "namespaced": true, "kind": "One", "verbs": ["get"] },
            ]});
            let body = if code == 200 {
                list.to_string()
            } else {
                "not now".to_owned()
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(body.into_bytes()));
            async move { answer.map_err(std::io::Error::other) }
        });
        (Client::new(service, "default"), code, asked)
    }

    #[tokio::test]
    async fn thousands_of_objects_of_a_kind_ask_for_it_once() {
        let (client, code, asked) = server();
        let discovery = Discovery::default();
        let resolve = |kind: &'static str| discovery.resolve(&client, "example.com", "v1", kind);
        for _ in 0..100 {
            assert!(resolve("Other").await.unwrap().is_none());
            assert!(resolve("One").await.unwrap().is_some());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // Definitions were made: what was not there is asked for again, what is known is not.
        code.store(500, Ordering::SeqCst);
        discovery.doubt();
        for _ in 0..100 {
            assert!(resolve("One").await.unwrap().is_some());
            assert!(resolve("Other").await.unwrap_err().is_code(500));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // One account that is refused is nobody else's affair.
        code.store(401, Ordering::SeqCst);
        discovery.doubt();
        assert!(resolve("Other").await.unwrap_err().is_code(401));
        code.store(200, Ordering::SeqCst);
        assert!(resolve("Other").await.unwrap().is_none());
        // Whoever makes up groups fills no memory, and makes nobody forget those that there are.
        code.store(404, Ordering::SeqCst);
        for number in 0..2 * MAX_KNOWN {
            let group = format!("{number}.example.com");
            let found = discovery.resolve(&client, &group, "v1", "One").await;
            assert!(found.unwrap().is_none());
        }
        assert!(discovery.lock().versions.len() <= MAX_KNOWN);
        assert!(resolve("One").await.unwrap().is_some());
        // A kind that went away is asked for again.
        code.store(404, Ordering::SeqCst);
        discovery.forget("example.com", "v1");
        assert!(resolve("One").await.unwrap().is_none());
    }
}
