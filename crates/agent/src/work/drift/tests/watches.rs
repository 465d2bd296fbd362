//! What is watched where the agent may not watch a whole kind.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    client::Body,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::json;
use writ_controller::{Name, ServedKind, queue::Queue};

use crate::work::{
    drift::{
        DriftIndex, DriftWatches, LastSeen, MAX_NAMESPACES, Need, UnwatchedObjects, UnwatchedReason,
        watch_scope::WatchScope, watches::substitutes,
    },
    model::Key,
};
use Rights::{ListAndWatch, ListOnly};

fn kind(plural: &str) -> Arc<ServedKind> {
    Arc::new(ServedKind {
        resource: ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "K"), plural),
        namespaced: true,
    })
}

fn name(namespace: &str, name: &str) -> Name {
    Name::new(namespace, name)
}

#[test]
fn refused_kind_is_watched_in_each_namespace_with_objects() {
    let (index, maps) = (DriftIndex::default(), kind("configmaps"));
    let names = [name("a", "x"), name("b", "x"), name("b", "y"), name("", "z")];
    let wanted: Vec<_> = names.iter().map(|name| (maps.clone(), name.clone())).collect();
    index.set_interest(&Key::work("w"), &wanted, &[]);
    let watched = |wide: &WatchScope| -> Vec<WatchScope> {
        let namespaces = index.scopes_by_namespace(&maps.resource);
        substitutes(wide, namespaces, |_| false).into_values().collect()
    };
    let in_b = WatchScope::Namespace("b".into());
    let (x, z) = (
        WatchScope::Object(name("a", "x")),
        WatchScope::Object(name("", "z")),
    );
    assert_eq!(watched(&WatchScope::All), [z, x, in_b]);
    // The same part as the refused one would be refused too.
    index.set_interest(&Key::work("w"), &wanted[1..3], &[]);
    assert_eq!(watched(&WatchScope::Namespace("b".into())), []);
    let cluster_scoped = [(maps.clone(), name("", "x")), (maps.clone(), name("", "y"))];
    index.set_interest(&Key::work("w"), &cluster_scoped, &[]);
    assert_eq!(watched(&WatchScope::All), []);
}

#[test]
fn substitutes_are_bounded_and_running_ones_stay() {
    let namespaces: BTreeMap<Arc<str>, WatchScope> = (0..MAX_NAMESPACES + 5)
        .map(|n| format!("n{n:03}").into())
        .map(|namespace: Arc<str>| (namespace.clone(), WatchScope::Namespace(namespace)))
        .collect();
    let chosen = substitutes(&WatchScope::All, namespaces, |namespace| namespace == "n104");
    assert_eq!(chosen.len(), MAX_NAMESPACES);
    assert!(chosen.contains_key("n104") && chosen.contains_key("n098") && !chosen.contains_key("n099"));
}

#[derive(Clone, Copy, PartialEq)]
enum Rights {
    ListOnly,
    ListAndWatch,
}

/// A server on which the agent may read some paths only.
#[derive(Clone, Default)]
struct Server {
    allowed: Arc<Mutex<HashMap<&'static str, Rights>>>,
    watched: Arc<Mutex<Vec<String>>>,
    asked: Arc<Mutex<usize>>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request.uri().clone()).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, uri: Uri) -> Result<Response<Body>, Infallible> {
        *self.asked.lock().unwrap() += 1;
        let path = uri.path();
        let watches = uri.query().is_some_and(|query| query.contains("watch=true"));
        let rights = self.allowed.lock().unwrap().get(path).copied();
        let answer = if rights.is_none_or(|rights| watches && rights == ListOnly) {
            (
                403,
                json!({"kind": "Status", "status": "Failure", "code": 403, "message": "", "reason": "Forbidden"}),
            )
        } else if watches {
            self.watched.lock().unwrap().push(path.to_owned());
            std::future::pending().await
        } else {
            (
                200,
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": "1"}, "items": []}),
            )
        };
        let body = Body::from(answer.1.to_string().into_bytes());
        Ok(Response::builder().status(answer.0).body(body).unwrap())
    }

    fn allow(&self, path: &'static str, rights: Rights) {
        self.allowed.lock().unwrap().insert(path, rights);
    }

    fn watches(&self, path: &str) -> bool {
        self.watched.lock().unwrap().iter().any(|watched| watched == path)
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), wait)
        .await
        .expect(what);
}

#[tokio::test]
async fn refused_kind_is_watched_in_parts_or_polled() {
    let server = Server::default();
    server.allow("/api/v1/namespaces/a/configmaps", ListAndWatch);
    let (index, queue) = (DriftIndex::default(), Queue::default());
    let (maps, rbac) = (kind("configmaps"), kind("rolebindings"));
    let watches = DriftWatches::new(
        server.client(),
        index.clone(),
        queue.clone(),
        Duration::from_secs(1),
        vec![rbac.clone()],
    );
    let key = Key::work("w");
    let names = [name("a", "x"), name("b", "x")];
    let wanted: Vec<_> = names.iter().map(|name| (maps.clone(), name.clone())).collect();
    index.set_interest(&key, &wanted, &[]);
    let end_request = |name: &Name| {
        let metadata = ObjectMeta {
            resource_version: Some("7".into()),
            ..ObjectMeta::default()
        };
        index.end_request(
            &key,
            &maps.resource,
            name,
            Some(LastSeen::of(&metadata, 1, false, "")),
        );
    };
    let need = |name: &Name| index.need(&key, &maps.resource, name, 1);
    let unwatched = || watches.unwatched(names.iter().map(|name| (&maps.resource, name.clone())));
    watches.refresh();

    until("a is watched", || {
        server.watches("/api/v1/namespaces/a/configmaps")
    })
    .await;
    until("b is not", || !unwatched().is_empty()).await;
    let b = UnwatchedObjects::beside(&maps.resource, &names[1], UnwatchedReason::Refused);
    assert_eq!(unwatched(), [b].into());
    let awaits_rights = || {
        let known = index.lock();
        let of_kind = known.kinds.get(&rbac.resource);
        of_kind.is_some_and(|of_kind| of_kind.awaited_by.contains(&Key::AgentRights))
    };
    assert!(awaits_rights());
    // The list of a shows that its object is gone; now both are there.
    names.iter().for_each(end_request);
    until("b is polled", || need(&names[1]) == Need::Write).await;
    assert_eq!(need(&names[0]), Need::Nothing, "what is watched is not polled");
    assert!(!queue.is_empty());

    server.allow("/api/v1/namespaces/b/configmaps", ListAndWatch);
    watches.retry_refused();
    until("both are watched", || unwatched().is_empty()).await;
    server.allow("/api/v1/configmaps", ListAndWatch);
    watches.retry_refused();
    until("the whole kind is watched", || {
        watches.has_no_substitutes(&maps.resource) && server.watches("/api/v1/configmaps")
    })
    .await;
    assert!(!awaits_rights());
}

#[tokio::test]
async fn watch_refused_after_its_list_is_tried_with_pauses() {
    let server = Server::default();
    server.allow("/api/v1/namespaces/a/configmaps", ListOnly);
    let (index, maps) = (DriftIndex::default(), kind("configmaps"));
    let watches = DriftWatches::new(
        server.client(),
        index.clone(),
        Queue::default(),
        Duration::from_mins(1),
        Vec::new(),
    );
    let x = name("a", "x");
    index.set_interest(&Key::work("w"), &[(maps.clone(), x.clone())], &[]);
    watches.refresh();
    until("it is refused", || {
        !watches
            .unwatched(std::iter::once((&maps.resource, x.clone())))
            .is_empty()
    })
    .await;
    let asked = *server.asked.lock().unwrap();
    assert!(asked <= 6, "{asked} requests");
}
