//! What is watched where the agent may not watch a whole kind.

use std::convert::Infallible;

use http::{Request, Response, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{client::Body, core::GroupVersionKind};
use serde_json::json;

use super::*;
use crate::work::objects::{Mark, Need};
use Rights::{ListAndWatch, ListOnly};

fn kind(plural: &str) -> Arc<Kind> {
    Arc::new(Kind {
        resource: ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "K"), plural),
        namespaced: true,
    })
}

fn name(namespace: &str, name: &str) -> Name {
    (namespace.into(), name.into())
}

#[test]
fn each_namespace_with_objects_stands_in_for_a_kind() {
    let (objects, maps) = (Objects::default(), kind("configmaps"));
    let names = [name("a", "x"), name("b", "x"), name("b", "y"), name("", "z")];
    let wanted: Vec<_> = names.iter().map(|name| (maps.clone(), name.clone())).collect();
    objects.interest(&Key::work("w"), &wanted, &[]);
    let stand_ins = |wide: &Scope| -> Vec<Scope> {
        let parts = objects.parts(&maps.resource);
        stand_ins(wide, parts, |_| false).into_values().collect()
    };
    let in_b = Scope::Namespace("b".into());
    let (x, z) = (Scope::Object(name("a", "x")), Scope::Object(name("", "z")));
    assert_eq!(stand_ins(&Scope::All), [z, x, in_b]);
    // What is refused itself is no way out.
    objects.interest(&Key::work("w"), &wanted[1..3], &[]);
    assert_eq!(stand_ins(&Scope::Namespace("b".into())), []);
    let cluster_scoped = [(maps.clone(), name("", "x")), (maps.clone(), name("", "y"))];
    objects.interest(&Key::work("w"), &cluster_scoped, &[]);
    assert_eq!(stand_ins(&Scope::All), []);
}

#[test]
fn there_are_only_so_many_stand_ins_and_those_that_run_stay() {
    let parts: BTreeMap<Arc<str>, Scope> = (0..MAX_NAMESPACES + 5)
        .map(|n| format!("n{n:03}").into())
        .map(|namespace: Arc<str>| (namespace.clone(), Scope::Namespace(namespace)))
        .collect();
    let chosen = stand_ins(&Scope::All, parts, |namespace| namespace == "n104");
    assert_eq!(chosen.len(), MAX_NAMESPACES);
    assert!(chosen.contains_key("n104") && chosen.contains_key("n098") && !chosen.contains_key("n099"));
}

#[derive(Clone, Copy, PartialEq)]
enum Rights {
    ListOnly,
    ListAndWatch,
}

/// A server that lets the agent see only some paths.
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
async fn what_may_not_be_watched_at_once_is_watched_in_parts_or_looked_at() {
    let server = Server::default();
    server.allow("/api/v1/namespaces/a/configmaps", ListAndWatch);
    let (objects, queue) = (Objects::default(), Queue::default());
    let (maps, rbac) = (kind("configmaps"), kind("rolebindings"));
    let watches = Watches::new(
        server.client(),
        objects.clone(),
        queue.clone(),
        Duration::from_secs(1),
        vec![rbac.clone()],
    );
    let key = Key::work("w");
    let names = [name("a", "x"), name("b", "x")];
    let wanted: Vec<_> = names.iter().map(|name| (maps.clone(), name.clone())).collect();
    objects.interest(&key, &wanted, &[]);
    let marked = |name: &Name| {
        let metadata = ObjectMeta {
            resource_version: Some("7".into()),
            ..ObjectMeta::default()
        };
        objects.mark(
            &key,
            &maps.resource,
            name,
            Some(Mark::of(&metadata, 1, false, "")),
        );
    };
    let need = |name: &Name| objects.need(&key, &maps.resource, name, 1);
    let blind = || watches.blind(names.iter().map(|name| (&maps.resource, name.clone())));
    watches.refresh();

    until("a is watched", || {
        server.watches("/api/v1/namespaces/a/configmaps")
    })
    .await;
    until("b is not", || !blind().is_empty()).await;
    let b = Blind::new(&maps.resource, &names[1], Why::Refused);
    assert_eq!(blind(), [b].into());
    assert!(
        objects.awaits(&Key::Rights, &rbac.resource),
        "rights are followed"
    );
    // The list of a shows that its object is gone; now both are there.
    names.iter().for_each(marked);
    until("b is looked at", || need(&names[1]) == Need::Write).await;
    assert_eq!(need(&names[0]), Need::Nothing, "what is watched is not looked at");
    assert!(!queue.is_empty());

    server.allow("/api/v1/namespaces/b/configmaps", ListAndWatch);
    watches.try_again();
    until("both are watched", || blind().is_empty()).await;
    server.allow("/api/v1/configmaps", ListAndWatch);
    watches.try_again();
    until("the whole kind is watched", || {
        let running = watches.0.running();
        running[&maps.resource].narrow.is_empty() && server.watches("/api/v1/configmaps")
    })
    .await;
    assert!(!objects.awaits(&Key::Rights, &rbac.resource));
}

#[tokio::test]
async fn who_may_list_and_not_watch_is_not_asked_all_the_time() {
    let server = Server::default();
    server.allow("/api/v1/namespaces/a/configmaps", ListOnly);
    let (objects, maps) = (Objects::default(), kind("configmaps"));
    let watches = Watches::new(
        server.client(),
        objects.clone(),
        Queue::default(),
        Duration::from_mins(1),
        Vec::new(),
    );
    let x = name("a", "x");
    objects.interest(&Key::work("w"), &[(maps.clone(), x.clone())], &[]);
    watches.refresh();
    until("it is refused", || {
        !watches
            .blind(std::iter::once((&maps.resource, x.clone())))
            .is_empty()
    })
    .await;
    let asked = *server.asked.lock().unwrap();
    assert!(asked <= 6, "{asked} requests");
}
