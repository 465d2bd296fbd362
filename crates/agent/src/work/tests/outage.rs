//! Hub and managed cluster that cannot be reached.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, Response, Uri};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_controller::health::Health;

use crate::{Context, Options, owner::hub_hash, work};

/// A server that lists one object, and whose connection is then lost: watches show nothing, and all else fails.
#[derive(Clone, Default)]
struct Server {
    object: Value,
    deletions: Arc<AtomicUsize>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            let (method, uri) = (request.method().clone(), request.uri().clone());
            async move { server.answer(method, uri).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, method: Method, uri: Uri) -> io::Result<Response<Body>> {
        if method == Method::DELETE {
            self.deletions.fetch_add(1, Ordering::SeqCst);
        }
        if method != Method::GET || !uri.path().ends_with("manifestworks") {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if uri.query().is_some_and(|query| query.contains("watch=true")) {
            return std::future::pending().await;
        }
        let list = json!({"kind": "List", "apiVersion": "work.open-cluster-management.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": [self.object]});
        Ok(Response::new(Body::from(list.to_string().into_bytes())))
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_during_an_outage_is_retried_with_growing_pauses() {
    let work = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "w", "namespace": "cluster1", "uid": "u", "resourceVersion": "1", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["cluster.open-cluster-management.io/manifest-work-cleanup"]},
        "spec": {"workload": {"manifests": []}}});
    let hash = hub_hash("https://hub");
    let applied = json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "metadata": {"name": format!("{hash}-w"), "uid": "a", "resourceVersion": "1", "generation": 1},
        "spec": {"hubHash": hash, "agentID": hash, "manifestWorkName": "w"},
        "status": {"appliedResources": [
            {"group": "", "version": "v1", "resource": "configmaps", "namespace": "n", "name": "a", "uid": "o"}]}});
    let (hub, spoke) = (
        Server {
            object: work,
            ..Server::default()
        },
        Server {
            object: applied,
            ..Server::default()
        },
    );
    let mut options = Options {
        cluster_name: "cluster1".into(),
        ..Options::default()
    };
    options.work.hub_server = "https://hub".into();
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let context = Context::new(
        hub.client(),
        spoke.client(),
        options,
        health.clone(),
        shutdown.clone(),
    );
    let controller = tokio::spawn(work::run(context));
    health.ready().await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let attempts = spoke.deletions.load(Ordering::SeqCst);
    assert!((5..40).contains(&attempts), "{attempts} attempts in ten minutes");
    shutdown.cancel();
    controller.await.unwrap().unwrap();
}
