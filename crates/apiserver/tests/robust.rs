//! What is large, slow, odd or damaged: it is refused or done, and keeps nobody else waiting.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{HeaderValue, Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use writ_apiserver::{Options, Server, serve};

fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().unwrap()
}

async fn remote(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

async fn post(client: &Client, path: &str, body: &Value) -> StatusCode {
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(body.to_string().into_bytes().into()).unwrap();
    client.send(request).await.unwrap().status()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// As many large requests as the server has threads, and more: others are answered meanwhile.
#[test]
fn large_requests_keep_nobody_waiting() {
    let busy = runtime(2);
    let server = busy.block_on(Server::builder().port(0).start()).unwrap();
    let labels: serde_json::Map<String, Value> = (0..60_000).map(|i| (format!("k{i}"), "v".into())).collect();
    let large = json!({ "metadata": { "name": "large", "labels": labels } });
    runtime(2).block_on(async {
        let (large_client, small_client) = (remote(&server).await, remote(&server).await);
        let path = format!("{MAPS}?dryRun=All");
        let work = join_all((0..6).map(|_| post(&large_client, &path, &large)));
        tokio::pin!(work);
        let (mut answered, mut slowest) = (0, Duration::ZERO);
        let begun = Instant::now();
        let codes = loop {
            let since = Instant::now();
            let small = small_client.send(Request::get(MAPS).body(Body::empty()).unwrap());
            tokio::select! {
                codes = &mut work => break codes,
                small = small => {
                    assert_eq!(small.unwrap().status(), 200);
                    answered += 1;
                    slowest = slowest.max(since.elapsed());
                }
            }
        };
        assert_eq!(codes, [StatusCode::CREATED; 6]);
        let all = begun.elapsed();
        assert!(
            answered > 20,
            "{answered} small ones while large ones took {all:?}"
        );
        // A sixth at most, as seen; half and more where they wait for threads.
        assert!(slowest < all * 2 / 5, "a small one took {slowest:?} of {all:?}");
    });
    busy.block_on(server.stop());
}

/// As many mistakes as there are items: they are told in a time that grows as the object does.
#[tokio::test]
async fn many_mistakes_are_told_in_time() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let definition = json!({
        "metadata": { "name": "heaps.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "heaps", "kind": "Heap" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": {
                    "set": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
                    "map": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": { "type": "object", "required": ["k"], "properties": { "k": { "type": "string" } } } },
                },
            } } }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(&client, definitions, &definition).await, 201);
    let heaps = "/apis/example.com/v1/namespaces/default/heaps";
    let heap = |field: &str, value: Value| json!({ "apiVersion": "example.com/v1", "kind": "Heap", "metadata": { "name": "h" }, field: value });
    while !client
        .send(Request::get(heaps).body(Body::empty()).unwrap())
        .await
        .unwrap()
        .status()
        .is_success()
    {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let numbers: Vec<Value> = (0..100_000).map(Value::from).collect();
    assert_eq!(post(&client, heaps, &heap("set", numbers.into())).await, 422);
    let empty = vec![json!({}); 100_000];
    assert_eq!(post(&client, heaps, &heap("map", empty.into())).await, 422);
    let mut unknown = heap("set", json!([]));
    for i in 0..60_000 {
        unknown[format!("u{i}")] = 1.into();
    }
    assert_eq!(post(&client, heaps, &unknown).await, 201);
    let keys: Vec<Value> = (0..10_000).map(|i| json!({ "k": i.to_string() })).collect();
    let mut moved = heap("map", keys.into());
    moved["metadata"]["name"] = "moved".into();
    assert_eq!(post(&client, heaps, &moved).await, 201);
    moved["map"].as_array_mut().unwrap().reverse();
    let put = Request::put(format!("{heaps}/moved")).header("Content-Type", "application/json");
    moved["metadata"]["resourceVersion"] = {
        let now = Request::get(format!("{heaps}/moved")).body(Vec::new()).unwrap();
        let now: Value = client.request(now).await.unwrap();
        now["metadata"]["resourceVersion"].clone()
    };
    let put = put.body(moved.to_string().into_bytes().into()).unwrap();
    assert_eq!(client.send(put).await.unwrap().status(), 200);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

/// Half a body: the request has its time, and no more.
#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for() {
    let server = Server::builder().port(0).start().await.unwrap();
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(server.ca().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let url = server.url().unwrap();
    let stream = TcpStream::connect(url.trim_start_matches("https://"))
        .await
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let head =
        format!("POST {MAPS}?timeout=200ms HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    let read = stream.read_exact(&mut answer);
    tokio::time::timeout(Duration::from_secs(30), read)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer, b"HTTP/1.1 504");
}

/// Somebody may be in hundreds of groups.
#[tokio::test]
async fn many_headers_are_read() {
    let server = Server::builder().port(0).start().await.unwrap();
    let mut request = Request::get(MAPS).header("Impersonate-User", "jane");
    let headers = request.headers_mut().unwrap();
    for i in 0..400 {
        let group = HeaderValue::try_from(format!("a-group-of-people-with-number-{i}")).unwrap();
        headers.append("Impersonate-Group", group);
    }
    let client = remote(&server).await;
    let answer = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 403);
}

async fn written(path: &Path) -> std::io::Result<()> {
    let options = Options {
        kubeconfig_out: Some(path.to_owned()),
        ..Options::default()
    };
    serve(options, |_, _| {}, async {})
        .await
        .map_err(|error| std::io::Error::other(error.to_string()))
}

/// Wherever the kubeconfig goes, nothing else is changed, and nobody else can read it.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn the_kubeconfig_goes_where_it_is_wanted() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // A link leads to the file.
    symlink(at("file"), at("link")).unwrap();
    std::fs::write(at("file"), "old").unwrap();
    // What somebody left in the way is not what is written to.
    std::fs::write(at("file.new"), "").unwrap();
    std::fs::set_permissions(at("file.new"), std::fs::Permissions::from_mode(0o666)).unwrap();
    written(&at("link")).await.unwrap();
    assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    let file = std::fs::metadata(at("file")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    assert!(
        std::fs::read_to_string(at("file"))
            .unwrap()
            .contains("client-key-data")
    );
    // A pipe, as `/dev/stdout` is one, is written to.
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = at("pipe");
        move || {
            let mut text = String::new();
            std::fs::File::open(pipe)
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            text
        }
    });
    written(&at("pipe")).await.unwrap();
    assert!(reader.join().unwrap().contains("client-key-data"));
    // Nothing is left of what failed.
    std::fs::create_dir(at("folder")).unwrap();
    assert!(written(&at("folder")).await.is_err());
    assert!(written(&at("nowhere/file")).await.is_err());
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["file", "folder", "link", "pipe"]);
}

/// A page of the database is overwritten: the server says so, wherever it is.
#[tokio::test]
async fn a_damaged_database_is_told() {
    const PAGE: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().data(folder.path()).start().await.unwrap();
    let map = json!({ "metadata": { "name": "m" }, "data": { "a": "b".repeat(10_000) } });
    assert_eq!(post(&server.client(), MAPS, &map).await, 201);
    server.stop().await;
    let path = folder.path().join("cluster.redb");
    let good = std::fs::read(&path).unwrap();
    let mut told = 0;
    for page in 1..good.len() / PAGE {
        let mut bad = good.clone();
        bad[page * PAGE..(page + 1) * PAGE].fill(0xa5);
        std::fs::write(&path, bad).unwrap();
        match Server::builder().data(folder.path()).start().await {
            Ok(server) => server.stop().await,
            Err(error) => {
                told += 1;
                let error = error.to_string();
                assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
            }
        }
    }
    assert!(told > 0);
}

/// A letter of an object is another one on the disk: what is read would look right, and is not what was written.
#[tokio::test]
async fn an_object_that_changed_on_the_disk_is_not_believed() {
    const TEXT: &[u8] = b"the text that was written";
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().data(folder.path()).start().await.unwrap();
    let map = json!({ "metadata": { "name": "m" }, "data": { "a": std::str::from_utf8(TEXT).unwrap() } });
    assert_eq!(post(&server.client(), MAPS, &map).await, 201);
    server.stop().await;
    let path = folder.path().join("cluster.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(TEXT))
        .collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at] = b'T';
    }
    std::fs::write(&path, bytes).unwrap();
    match Server::builder().data(folder.path()).start().await {
        Ok(_) => panic!("it is believed"),
        Err(error) => assert!(error.to_string().contains("corrupted"), "{error}"),
    }
}
