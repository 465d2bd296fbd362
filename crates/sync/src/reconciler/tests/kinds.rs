//! Waiting for the kinds of definitions that were just applied.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};
use writ_controller::{Name, ObjectId};

use super::desired::{adopted, definition, raw};
use crate::{
    Options,
    model::{Sync, SyncKind},
    reconciler::{
        drift::{Scope, Seen, Watches},
        observe::await_kinds,
        observed::{Applied, Observed, Outcome, WatchState},
        session::Session,
        shared::{Account, Identities, Shared},
    },
};

/// An API server whose discovery shows the kind `Thing` once it is told to.
#[derive(Clone, Default)]
struct Server {
    serves: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            server.requests.fetch_add(1, Ordering::SeqCst);
            let thing = json!({
                "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"],
            });
            let resources = if server.serves.load(Ordering::SeqCst) {
                vec![thing]
            } else {
                Vec::new()
            };
            let list = json!({ "kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": resources });
            let response = Response::builder().body(Body::from(list.to_string().into_bytes()));
            async move { response.map_err(std::io::Error::other) }
        });
        Client::new(service, "default")
    }
}

fn definition_id() -> ObjectId {
    ObjectId {
        group: "apiextensions.k8s.io".into(),
        kind: "CustomResourceDefinition".into(),
        name: Name::global("things.example.com"),
    }
}

/// Applies a definition, and waits for its kind. The server establishes and serves it after `delay`, and the watch on
/// definitions shows that if there is one. Returns the number of requests to discovery, and the time of the wait.
async fn wait(delay: Duration, is_watched: bool) -> (usize, Duration) {
    let server = Server::default();
    let desired = adopted(
        SyncKind::Root,
        vec![
            definition("Namespaced"),
            raw("example.com/v1", "Thing", "a", "web"),
        ],
    );
    let mut observed = Observed::default();
    let scope = Scope {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        kind: "CustomResourceDefinition".into(),
        namespace: String::new(),
    };
    let state = if is_watched {
        WatchState::Ready
    } else {
        WatchState::Refused("no".into())
    };
    observed.watches.insert(scope, state);
    let applied = Applied {
        version: "1".into(),
        hash: desired.declared[&definition_id()].hash.clone(),
    };
    observed.record(&definition_id(), Outcome::Applied(applied), Instant::now());
    let client = server.client();
    let (mut watches, sender): (Watches, mpsc::Sender<Seen>) =
        Watches::for_tests(client.clone(), &desired.id);
    let sync = Sync {
        id: desired.id.clone(),
        metadata: kube::api::ObjectMeta::default(),
        spec: Err("not needed".into()),
        status: writ_api::configsync::SyncStatus::default(),
    };
    let shared = Shared::new(Identities::Own(client.clone()), &Options::default());
    let session = Session::new(Arc::new(shared), Arc::new(sync), Account::of_process(client));
    tokio::spawn({
        let server = server.clone();
        async move {
            tokio::time::sleep(delay).await;
            server.serves.store(true, Ordering::SeqCst);
            if is_watched {
                let conditions = json!([{ "type": "Established", "status": "True" }]);
                let object: Value =
                    json!({ "metadata": { "resourceVersion": "2" }, "status": { "conditions": conditions }});
                let (id, object) = (definition_id(), Box::new(object));
                let _ = sender.send(Seen::Live { id, object, by: None }).await;
            }
            // Keeps the channel open.
            std::future::pending::<()>().await;
        }
    });
    let start = Instant::now();
    let definitions = [definition_id()].into();
    let pending = vec![definition_id()];
    await_kinds(
        &session,
        &definitions,
        pending,
        &desired,
        &mut observed,
        &mut watches,
    )
    .await;
    (server.requests.load(Ordering::SeqCst), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn new_kind_is_awaited_by_the_watch_on_definitions() {
    let delay = Duration::from_secs(3);
    let (requests, waited) = wait(delay, true).await;
    assert_eq!(
        requests, 1,
        "discovery is asked once the definition is established"
    );
    assert!(
        waited >= delay && waited < delay + Duration::from_millis(100),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn new_kind_without_a_watch_is_looked_for_with_growing_pauses() {
    let delay = Duration::from_secs(3);
    let (requests, waited) = wait(delay, false).await;
    assert!(requests <= 12, "discovery was asked {requests} times");
    assert!(
        waited >= delay && waited < delay + Duration::from_secs(2),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn kind_that_is_never_served_is_awaited_for_a_limited_time() {
    for is_watched in [true, false] {
        let (requests, waited) = wait(Duration::from_hours(1), is_watched).await;
        assert!(requests <= 20, "discovery was asked {requests} times");
        assert!(waited < Duration::from_secs(13), "{waited:?}");
    }
}
