//! Watches over a WebSocket: slow readers, tokens in place of protocols, and what a client may say.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "conformance/frames.rs"]
mod frames;

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use writ_apiserver::{Server, User};

/// Asks for a WebSocket; with the administrator's certificate, or with nothing.
async fn ask(server: &Server, path: &str, certificate: bool, protocol: Option<&str>) -> Response<Body> {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    if !certificate {
        config.auth_info = AuthInfo::default();
    }
    let mut request = http::Request::get(path);
    for (name, value) in frames::ASKING {
        request = request.header(name, value);
    }
    if let Some(protocol) = protocol {
        request = request.header("Sec-WebSocket-Protocol", protocol);
    }
    let client = Client::try_from(config).unwrap();
    client.send(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// More happens than history holds while a watcher does not read: writers go on, and it is told 410 in the end.
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
    let path = format!("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={since}");
    let slow = ask(&server, &path, true, None).await;
    assert_eq!(slow.status(), 101);

    let began = Instant::now();
    for number in 0..WRITES {
        let change = Patch::Merge(json!({ "data": { "number": number.to_string() } }));
        let params = PatchParams::default();
        maps.patch("busy", &params, &change).await.unwrap();
    }
    assert!(
        began.elapsed() < Duration::from_mins(1),
        "writers wait for a reader"
    );

    let seen = frames::read(slow).await.unwrap();
    let seen = seen.as_array().unwrap();
    let (close, last) = (&seen[seen.len() - 1], &seen[seen.len() - 2]);
    assert_eq!(*close, json!({ "close": [3, 232] }));
    assert_eq!(last["text"]["object"]["code"], 410);
    assert!(
        seen.len() < WRITES,
        "nothing was kept for it but what was on its way"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_be_a_protocol_and_a_client_may_say_goodbye() {
    let admin = User::new("alice", ["system:masters"]);
    let server = Server::builder()
        .token("secret", admin)
        .port(0)
        .start()
        .await
        .unwrap();
    let token = URL_SAFE_NO_PAD.encode("secret");
    let protocol = format!("base64url.bearer.authorization.k8s.io.{token}, some.protocol");
    let path = "/api/v1/namespaces/default/configmaps?watch=true&labelSelector=none";
    assert_eq!(ask(&server, path, false, None).await.status(), 403);
    let answer = ask(&server, path, false, Some(&protocol)).await;
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.headers()["sec-websocket-protocol"], "some.protocol");

    let mut socket = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    // Masked, with zeros: text that nobody reads, a ping, and the end.
    let mut said = vec![0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
    said.extend([0x89, 0x81, 0, 0, 0, 0, b'x']);
    said.extend([0x88, 0x80, 0, 0, 0, 0]);
    socket.write_all(&said).await.unwrap();
    let mut heard = Vec::new();
    let all = socket.read_to_end(&mut heard);
    drop(tokio::time::timeout(Duration::from_secs(10), all).await.unwrap());
    assert_eq!(heard[..3], [0x8a, 1, b'x'], "the ping comes back");
    assert_eq!(heard[3] & 0x0f, 8, "and then the end");
    server.stop().await;
}
