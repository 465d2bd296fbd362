//! Watches over the socket: slow readers, bookmarks, history that is gone; and both versions of HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use writ_apiserver::{Clock, Server};

async fn remote(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// What a watch without filters says from a version on, once it ends.
async fn open(client: &Client, path: &str) -> kube::client::Body {
    let request = http::Request::get(path)
        .body(kube::client::Body::empty())
        .unwrap();
    client.send(request).await.unwrap().into_body()
}

async fn events(body: kube::client::Body) -> Vec<Value> {
    let bytes = body.collect().await.unwrap().to_bytes();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// More happens than history holds while a watcher does not read: writers go on, it is told 410 in the end, and others
/// miss nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_too_slow_is_told_so() {
    const WRITES: usize = 5000;
    let server = Server::builder().port(0).start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let map = json!({ "metadata": { "name": "busy" }, "data": { "filler": "x".repeat(4096) } });
    let made = maps
        .create(&PostParams::default(), &serde_json::from_value(map).unwrap())
        .await
        .unwrap();
    let since = made.metadata.resource_version.unwrap();
    let path =
        format!("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={since}&timeoutSeconds=60");
    let slow = open(&remote(&server).await, &path).await;
    let eager = maps.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    let eager = tokio::spawn(async move { eager.take(WRITES).try_collect::<Vec<_>>().await.unwrap().len() });

    let began = Instant::now();
    for number in 0..WRITES {
        let change = Patch::Merge(json!({ "data": { "number": number.to_string() } }));
        maps.patch("busy", &PatchParams::default(), &change)
            .await
            .unwrap();
    }
    assert!(
        began.elapsed() < Duration::from_mins(1),
        "writers wait for a reader"
    );
    assert_eq!(eager.await.unwrap(), WRITES);

    let seen = events(slow).await;
    let last = seen.last().unwrap();
    assert_eq!(
        json!([last["type"], last["object"]["code"], last["object"]["reason"]]),
        json!(["ERROR", 410, "Expired"])
    );
    assert!(
        seen.len() < WRITES,
        "nothing was kept for it but what was on its way"
    );
}

#[tokio::test]
async fn bookmarks_come_before_the_end() {
    let server = Server::builder().port(0).start().await.unwrap();
    let client = remote(&server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let start = maps.list(&ListParams::default()).await.unwrap().metadata;
    let start = start.resource_version.unwrap();
    let path = |bookmarks: bool| {
        format!(
            "/api/v1/namespaces/default/secrets?watch=true&resourceVersion={start}&timeoutSeconds=3&allowWatchBookmarks={bookmarks}"
        )
    };
    let (marked, plain) = (path(true), path(false));
    let (with, without) = tokio::join!(open(&client, &marked), open(&client, &plain));
    // What happens elsewhere moves the bookmark on, too.
    let map = serde_json::from_value(json!({ "metadata": { "name": "elsewhere" } })).unwrap();
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    let (with, without) = tokio::join!(events(with), events(without));
    assert_eq!(with.len(), 1, "{with:?}");
    assert_eq!(with[0]["type"], "BOOKMARK");
    let at = |value: &str| value.parse::<u64>().unwrap();
    assert!(
        at(with[0]["object"]["metadata"]["resourceVersion"].as_str().unwrap())
            >= at(&made.metadata.resource_version.unwrap())
    );
    assert_eq!(without, Vec::<Value>::new());
}

/// A definition that is made again may begin a new history: whoever watched the old one hears of its end, or must list again.
#[tokio::test]
async fn a_definition_that_comes_back_hides_no_deletion() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    }))
    .unwrap();
    let mut kind = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("example.com", "v1", "Thing"));
    kind.plural = "things".into();
    let things: Api<DynamicObject> = Api::all_with(client, &kind);
    let mut start = String::new();
    for _ in 0..2 {
        crds.create(&PostParams::default(), &crd).await.unwrap();
        let established = await_condition(
            crds.clone(),
            "things.example.com",
            conditions::is_crd_established(),
        );
        established.await.unwrap();
        if start.is_empty() {
            let made = things
                .create(&PostParams::default(), &DynamicObject::new("a", &kind))
                .await
                .unwrap();
            start = made.metadata.resource_version.unwrap();
            let uid = crds
                .get("things.example.com")
                .await
                .unwrap()
                .metadata
                .uid
                .unwrap();
            crds.delete("things.example.com", &DeleteParams::default())
                .await
                .unwrap();
            await_condition(crds.clone(), "things.example.com", conditions::is_deleted(&uid))
                .await
                .unwrap();
        }
    }
    let told = match things.watch(&WatchParams::default().timeout(5), &start).await {
        Err(kube::Error::Api(status)) => status.code == 410,
        Err(other) => panic!("{other}"),
        Ok(events) => match events.boxed().try_next().await.unwrap() {
            Some(WatchEvent::Error(status)) => status.code == 410,
            Some(WatchEvent::Deleted(_)) => true,
            other => panic!("{other:?}"),
        },
    };
    assert!(told);
}

/// As at the real server: a watch of custom resources ends when their definition changes, and what was before is past.
#[tokio::test]
async fn a_new_definition_ends_watches_of_the_old_one() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let send = async |method: &str, path: &str, body: Value| -> Value {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", "application/json-patch+json");
        let request = if method == "POST" {
            http::Request::post(path).header("Content-Type", "application/json")
        } else {
            request
        };
        let text = client
            .request_text(request.body(body.to_string().into_bytes()).unwrap())
            .await
            .unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = json!({
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }],
        },
    });
    send("POST", definitions, crd).await;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = conditions::is_crd_established();
    await_condition(crds, "things.example.com", established)
        .await
        .unwrap();
    let things = "/apis/example.com/v1/things";
    let thing = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a" } });
    let made = send("POST", things, thing).await;
    let start = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{things}?watch=true&resourceVersion={start}&timeoutSeconds=600");
    let running = tokio::spawn({
        let (client, path) = (client.clone(), path.clone());
        async move { events(open(&client, &path).await).await }
    });
    let definition = format!("{definitions}/things.example.com");
    // A label is no other definition.
    let label = json!([{ "op": "add", "path": "/metadata/labels", "value": { "a": "b" } }]);
    send("PATCH", &definition, label).await;
    let seen = format!("{things}?watch=true&resourceVersion={start}&timeoutSeconds=1");
    assert_eq!(events(open(&client, &seen).await).await, Vec::<Value>::new());
    assert!(!running.is_finished());
    let column = json!([{ "op": "add", "path": "/spec/versions/0/additionalPrinterColumns",
        "value": [{ "name": "n", "type": "string", "jsonPath": ".n" }] }]);
    send("PATCH", &definition, column).await;
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), running).await;
    assert_eq!(ended.unwrap().unwrap(), Vec::<Value>::new());
    let told = events(open(&client, &path).await).await;
    assert_eq!(told[0]["type"], "ERROR");
    assert_eq!(told[0]["object"]["code"], 410);
}

/// A request over one version of HTTP; the version that the two ends agreed on, and the answer.
async fn speak(server: &Server, protocol: &'static [u8]) -> (Vec<u8>, http::Version, u16, Value) {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(server.ca().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let url: http::Uri = server.url().unwrap().parse().unwrap();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", url.port_u16().unwrap()))
        .await
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let agreed = stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec();
    let io = TokioIo::new(stream);
    let request = http::Request::get(format!("{}/version", server.url().unwrap()))
        .header("host", "localhost")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = if agreed == b"h2" {
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let (version, code) = (answer.version(), answer.status().as_u16());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (agreed, version, code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let server = Server::builder().port(0).start().await.unwrap();
    let (agreed, version, code, old) = speak(&server, b"http/1.1").await;
    assert_eq!(
        (agreed.as_slice(), version, code),
        (b"http/1.1".as_slice(), http::Version::HTTP_11, 200)
    );
    let (agreed, version, code, new) = speak(&server, b"h2").await;
    assert_eq!(
        (agreed.as_slice(), version, code),
        (b"h2".as_slice(), http::Version::HTTP_2, 200)
    );
    assert_eq!(old, new);
}

/// A pod on a node is told when its time is over, and less of it if it is told again. Here it is gone as soon as nobody waits.
#[tokio::test]
async fn the_end_of_a_pod_comes_after_its_time() {
    let clock = Clock::manual("2030-01-01T00:00:00Z".parse().unwrap());
    let server = Server::builder().clock(clock.clone()).start().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let pod = json!({
        "metadata": { "name": "p", "finalizers": ["example.com/hold"] },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    let since = made.metadata.resource_version.unwrap();
    let delete = async |seconds| {
        let params = DeleteParams {
            grace_period_seconds: seconds,
            ..DeleteParams::default()
        };
        let marked = pods.delete("p", &params).await.unwrap().left().unwrap();
        marked.metadata.deletion_timestamp.unwrap().0.to_string()
    };
    assert_eq!(delete(None).await, "2030-01-01T00:00:30Z");
    clock.advance(SignedDuration::from_secs(4));
    assert_eq!(delete(Some(40)).await, "2030-01-01T00:00:30Z");
    assert_eq!(delete(Some(20)).await, "2030-01-01T00:00:20Z");
    assert_eq!(delete(Some(3)).await, "2030-01-01T00:00:04Z");
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods.patch("p", &PatchParams::default(), &free).await.unwrap();
    let events = pods.watch(&WatchParams::default(), &since).await.unwrap();
    let events: Vec<_> = events.take(4).try_collect().await.unwrap();
    let graces = events.iter().map(|event| match event {
        WatchEvent::Modified(pod) => ("changed", pod.metadata.deletion_grace_period_seconds),
        WatchEvent::Deleted(pod) => ("gone", pod.metadata.deletion_grace_period_seconds),
        other => panic!("{other:?}"),
    });
    let told = [
        ("changed", Some(30)),
        ("changed", Some(20)),
        ("changed", Some(1)),
        ("gone", Some(1)),
    ];
    assert_eq!(graces.collect::<Vec<_>>(), told);
}
