//! From a kind to the resource that serves it, as discovery tells it.
//!
//! One mapper serves a whole process, whatever account asks: a kind that was found is known until it is forgotten; that a
//! kind is not served, or that a group does not answer, is believed for moments only. Thousands of objects of one
//! kind therefore cost one request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use tokio::time::Instant;

use crate::{Error, backoff::Backoff, error::Context as _};

/// How long the server may take to say what a group serves. An aggregated API may stand behind it, and be away.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How long it is believed that a kind is not served.
const NOT_SERVED_FOR: Duration = Duration::from_millis(500);

/// How long a group that did not answer is not asked again: at first, and after many failures.
const FAILED_FOR: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// How many group versions are remembered together with those that are not served, of which manifests can name any number.
const MAX_GROUP_VERSIONS: usize = 1000;

/// A kind, and how it is served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServedKind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl ServedKind {
    /// The API of the objects in a namespace; that is empty, and not looked at, for a kind without namespaces.
    pub fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// The kinds of one group version, by name.
type Kinds = HashMap<String, Arc<ServedKind>>;
/// Every group with each of its versions.
type Groups = Arc<Vec<(String, String)>>;

/// What is known of one group version.
struct GroupVersion {
    kinds: Arc<Kinds>,
    /// Why it could not be asked for, the last time.
    failure: Option<Arc<Error>>,
    /// Until when what is missing here, or the failure, is believed.
    believed_until: Option<Instant>,
    pauses: Backoff,
}

impl Default for GroupVersion {
    fn default() -> Self {
        let [first, last] = FAILED_FOR;
        Self {
            kinds: Arc::default(),
            failure: None,
            believed_until: None,
            pauses: Backoff::new(first, last),
        }
    }
}

impl GroupVersion {
    /// What is known of a kind; `None` if the server has to be asked.
    fn find(
        &self,
        is_wanted: impl Fn(&ServedKind) -> bool,
    ) -> Option<Result<Option<Arc<ServedKind>>, Arc<Error>>> {
        if let Some(found) = self.kinds.values().find(|kind| is_wanted(kind)) {
            return Some(Ok(Some(found.clone())));
        }
        let believed = self.believed_until.is_some_and(|until| Instant::now() < until);
        believed.then(|| self.failure.clone().map_or(Ok(None), Err))
    }
}

#[derive(Default)]
struct Known {
    group_versions: HashMap<String, GroupVersion>,
    groups: Option<(Groups, Instant)>,
}

/// The kinds of one API server. Cheap to clone.
#[derive(Clone, Default)]
pub struct RestMapper {
    known: Arc<Mutex<Known>>,
}

impl RestMapper {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a kind is served; `None` if it is not.
    pub async fn find(
        &self,
        client: &Client,
        gvk: &GroupVersionKind,
    ) -> Result<Option<Arc<ServedKind>>, Arc<Error>> {
        let is_wanted = |kind: &ServedKind| kind.resource.kind == gvk.kind;
        self.find_in(client, &gvk.group, &gvk.version, is_wanted).await
    }

    /// The kind whose objects are served under this plural; `None` if there is none.
    pub async fn find_resource(
        &self,
        client: &Client,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Option<Arc<ServedKind>>, Arc<Error>> {
        let is_wanted = |kind: &ServedKind| kind.resource.plural == plural;
        self.find_in(client, group, version, is_wanted).await
    }

    /// A kind in any version, preferably one that is known already.
    pub async fn find_in_any_version(
        &self,
        client: &Client,
        group: &str,
        kind: &str,
    ) -> Result<Option<Arc<ServedKind>>, Arc<Error>> {
        let is_wanted = |served: &ServedKind| served.resource.kind == kind;
        if group.is_empty() {
            return self.find_in(client, "", "v1", is_wanted).await;
        }
        let is_in_group = |served: &ServedKind| is_wanted(served) && served.resource.group == group;
        let known = self.lock().group_versions.values().find_map(|version| {
            let mut kinds = version.kinds.values();
            kinds.find(|served| is_in_group(served)).cloned()
        });
        if known.is_some() {
            return Ok(known);
        }
        let groups = self.groups(client).await?;
        for (_, version) in groups.iter().filter(|(name, _)| name == group) {
            let found = self.find_in(client, group, version, is_wanted).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Forgets a group: a definition of it changed or went.
    pub fn forget(&self, group: &str) {
        let mut known = self.lock();
        let is_of_group =
            |api_version: &str| api_version.rsplit_once('/').map_or("", |(name, _)| name) == group;
        known
            .group_versions
            .retain(|api_version, _| !is_of_group(api_version));
        known.groups = None;
    }

    /// What was not served may be by now, as definitions were just made. What was found stays known.
    pub fn expect_new_kinds(&self) {
        let mut known = self.lock();
        for version in known.group_versions.values_mut() {
            version.believed_until = None;
        }
        known.groups = None;
    }

    async fn find_in(
        &self,
        client: &Client,
        group: &str,
        version: &str,
        is_wanted: impl Fn(&ServedKind) -> bool + Copy,
    ) -> Result<Option<Arc<ServedKind>>, Arc<Error>> {
        let api_version = api_version(group, version);
        let known = self
            .lock()
            .group_versions
            .get(&api_version)
            .map(|known| known.find(is_wanted));
        if let Some(answer) = known.flatten() {
            return answer;
        }
        let asked = within(&api_version, list_kinds(client, group, version, &api_version)).await;
        let mut known = self.lock();
        if known.group_versions.len() >= MAX_GROUP_VERSIONS {
            known.group_versions.retain(|_, known| !known.kinds.is_empty());
        }
        let known = known.group_versions.entry(api_version).or_default();
        match asked {
            Ok(kinds) => {
                *known = GroupVersion {
                    kinds: Arc::new(kinds),
                    believed_until: Some(Instant::now() + NOT_SERVED_FOR),
                    ..GroupVersion::default()
                };
                Ok(known.kinds.values().find(|kind| is_wanted(kind)).cloned())
            }
            Err(error) => {
                let error = Arc::new(error);
                // What one account is refused says nothing about the others.
                if !matches!(error.code(), Some(401 | 403)) {
                    known.failure = Some(error.clone());
                    known.believed_until = Some(Instant::now() + known.pauses.next_delay());
                }
                Err(error)
            }
        }
    }

    async fn groups(&self, client: &Client) -> Result<Groups, Arc<Error>> {
        if let Some((groups, believed_until)) = &self.lock().groups
            && Instant::now() < *believed_until
        {
            return Ok(groups.clone());
        }
        let list = async {
            client
                .list_api_groups()
                .await
                .context(|| "discover the API groups".into())
        };
        let groups = within("the API groups", list).await?.groups;
        let group_versions = groups.into_iter().flat_map(|group| {
            let versions = group.versions.into_iter();
            versions.map(move |version| (group.name.clone(), version.version))
        });
        let groups: Groups = Arc::new(group_versions.collect());
        self.lock().groups = Some((groups.clone(), Instant::now() + NOT_SERVED_FOR));
        Ok(groups)
    }
}

fn api_version(group: &str, version: &str) -> String {
    GroupVersionKind::gvk(group, version, "").api_version()
}

async fn within<T>(what: &str, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(ANSWERS_WITHIN, request)
        .await
        .unwrap_or_else(|_| {
            let why = format!("no answer within {} s", ANSWERS_WITHIN.as_secs());
            Err(Error::io(format!("discover {what}"), why))
        })
}

/// The kinds of a group version; none if there is no such version.
async fn list_kinds(client: &Client, group: &str, version: &str, api_version: &str) -> Result<Kinds, Error> {
    let listed = if group.is_empty() {
        client.list_core_api_resources(version).await
    } else {
        client.list_api_group_resources(api_version).await
    };
    match listed {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Kinds::new()),
        listed => Ok(kinds(
            listed.context(|| format!("discover {api_version}"))?,
            group,
            version,
        )),
    }
}

fn kinds(list: APIResourceList, group: &str, version: &str) -> Kinds {
    // A subresource has a slash in its name.
    let resources = list
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'));
    let kinds = resources.map(|resource| {
        let gvk = GroupVersionKind::gvk(group, version, &resource.kind);
        let kind = ServedKind {
            resource: ApiResource::from_gvk_with_plural(&gvk, &resource.name),
            namespaced: resource.namespaced,
        };
        (resource.kind, Arc::new(kind))
    });
    kinds.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A server that answers with a status code, or with a list that has one kind; it counts the requests.
    #[derive(Clone, Default)]
    struct Server {
        refuses_with: Arc<AtomicU16>,
        requests: Arc<AtomicUsize>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                server.requests.fetch_add(1, Ordering::SeqCst);
                let code = server.refuses_with.load(Ordering::SeqCst);
                let body = match (code, request.uri().path()) {
                    (0, "/apis") => {
                        json!({"kind": "APIGroupList", "groups": [{"name": "example.com", "versions": [
                        {"groupVersion": "example.com/v0", "version": "v0"},
                        {"groupVersion": "example.com/v1", "version": "v1"}]}]})
                    }
                    (0, path) if path.ends_with("/v1") => {
                        json!({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [
                            {"name": "ones", "singularName": "one", "namespaced": true, "kind": "One", "verbs": ["get"]},
                            {"name": "ones/status", "singularName": "", "namespaced": true, "kind": "One", "verbs": ["get"]}]})
                    }
                    (0, _) => json!({"kind": "APIResourceList", "groupVersion": "", "resources": []}),
                    _ => json!("not now"),
                };
                let response = Response::builder().status(if code == 0 { 200 } else { code });
                let response = response.body(Body::from(body.to_string().into_bytes()));
                async move { response.map_err(std::io::Error::other) }
            });
            Client::new(service, "default")
        }

        fn refuse_with(&self, code: u16) {
            self.refuses_with.store(code, Ordering::SeqCst);
        }

        fn requests(&self) -> usize {
            self.requests.load(Ordering::SeqCst)
        }
    }

    fn one() -> GroupVersionKind {
        GroupVersionKind::gvk("example.com", "v1", "One")
    }

    fn other() -> GroupVersionKind {
        GroupVersionKind::gvk("example.com", "v1", "Other")
    }

    #[tokio::test(start_paused = true)]
    async fn many_objects_of_a_kind_cost_one_request() {
        let (server, mapper) = (Server::default(), RestMapper::default());
        let client = server.client();
        for _ in 0..100 {
            assert_eq!(mapper.find(&client, &other()).await.unwrap(), None);
            let found = mapper.find(&client, &one()).await.unwrap().unwrap();
            assert_eq!((found.resource.plural.as_str(), found.namespaced), ("ones", true));
            let by_plural = mapper.find_resource(&client, "example.com", "v1", "ones").await;
            assert_eq!(by_plural.unwrap().unwrap(), found);
        }
        assert_eq!(server.requests(), 1);
        // That a kind is not served is believed for a moment only.
        tokio::time::advance(NOT_SERVED_FOR).await;
        assert_eq!(mapper.find(&client, &other()).await.unwrap(), None);
        assert_eq!(server.requests(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_group_is_asked_with_growing_pauses() {
        let (server, mapper) = (Server::default(), RestMapper::default());
        let client = server.client();
        mapper.find(&client, &one()).await.unwrap();
        server.refuse_with(500);
        mapper.expect_new_kinds();
        for _ in 0..100 {
            assert!(
                mapper.find(&client, &one()).await.unwrap().is_some(),
                "it stays known"
            );
            assert!(mapper.find(&client, &other()).await.unwrap_err().is_code(500));
        }
        assert_eq!(server.requests(), 2);
        // In ten minutes it is asked every two seconds, and a fifth more or less.
        for _ in 0..6000 {
            tokio::time::advance(Duration::from_millis(100)).await;
            let _ = mapper.find(&client, &other()).await;
        }
        assert!((230..380).contains(&server.requests()), "{}", server.requests());
    }

    #[tokio::test(start_paused = true)]
    async fn refused_account_changes_nothing_for_others() {
        let (server, mapper) = (Server::default(), RestMapper::default());
        let client = server.client();
        server.refuse_with(401);
        assert!(mapper.find(&client, &one()).await.unwrap_err().is_code(401));
        server.refuse_with(0);
        assert!(mapper.find(&client, &one()).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn silent_server_is_given_up() {
        let service = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let client = Client::new(service, "default");
        let error = RestMapper::default().find(&client, &one()).await.unwrap_err();
        assert_eq!(error.to_string(), "discover example.com/v1: no answer within 5 s");
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_groups_fill_no_memory() {
        let (server, mapper) = (Server::default(), RestMapper::default());
        let client = server.client();
        mapper.find(&client, &one()).await.unwrap();
        server.refuse_with(404);
        for number in 0..2 * MAX_GROUP_VERSIONS {
            let gvk = GroupVersionKind::gvk(&format!("{number}.example.com"), "v1", "One");
            assert_eq!(mapper.find(&client, &gvk).await.unwrap(), None);
        }
        assert!(mapper.lock().group_versions.len() <= MAX_GROUP_VERSIONS);
        assert!(mapper.find(&client, &one()).await.unwrap().is_some());
        // A kind that went away is asked for again.
        mapper.forget("example.com");
        assert_eq!(mapper.find(&client, &one()).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn kind_without_version_is_found_in_any() {
        let (server, mapper) = (Server::default(), RestMapper::default());
        let client = server.client();
        for _ in 0..3 {
            let found = mapper.find_in_any_version(&client, "example.com", "One").await;
            assert_eq!(found.unwrap().unwrap().resource.version, "v1");
        }
        assert_eq!(server.requests(), 3, "the groups, and two versions");
        let missing = mapper.find_in_any_version(&client, "other.com", "One").await;
        assert_eq!(missing.unwrap(), None);
    }
}
