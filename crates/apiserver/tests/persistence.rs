//! What was acknowledged is still there after the process is killed in the middle of writes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use writ_apiserver::{Options, Server, serve};

const CHILD: &str = "WRIT_APISERVER_TEST_CHILD";

/// Not a test: the process that the test below kills. It does nothing unless asked to.
#[tokio::test]
async fn child() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let folder = Path::new(&folder);
    let options = Options {
        port: 0,
        data: Some(folder.join("data")),
        kubeconfig_out: Some(folder.join("kubeconfig")),
    };
    serve(options, |_, _| {}, std::future::pending()).await.unwrap();
}

async fn start(folder: &Path) -> (Child, Client) {
    let kubeconfig = folder.join("kubeconfig");
    drop(std::fs::remove_file(&kubeconfig));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env(CHILD, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !kubeconfig.exists() {
        assert!(Instant::now() < deadline, "the server did not start");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    (child, Client::try_from(config).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<String> = Vec::new();
    let mut newest = 0;
    for round in 0..3 {
        let (mut child, client) = start(folder.path()).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let maps = maps.clone();
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    for number in 0.. {
                        let name = format!("m-{round}-{writer}-{number}");
                        let map: ConfigMap =
                            serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
                        match maps.create(&PostParams::default(), &map).await {
                            Ok(made) => done.push((name, made.metadata.resource_version.unwrap())),
                            Err(_) => break,
                        }
                    }
                    done
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(400)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        for writer in writers {
            for (name, version) in writer.await.unwrap() {
                acknowledged.push(name);
                newest = newest.max(version.parse::<u64>().unwrap());
            }
        }
    }
    assert!(
        acknowledged.len() > 20,
        "only {} writes were acknowledged",
        acknowledged.len()
    );
    let server = Server::builder()
        .data(folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let list = maps.list(&ListParams::default()).await.unwrap();
    let there: std::collections::BTreeSet<String> = list
        .items
        .into_iter()
        .filter_map(|map| map.metadata.name)
        .collect();
    let missing: Vec<&String> = acknowledged
        .iter()
        .filter(|name| !there.contains(*name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(list.metadata.resource_version.unwrap().parse::<u64>().unwrap() >= newest);
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().data(folder.path()).start().await.unwrap();
    let spaces: Api<Namespace> = Api::all(server.client());
    let before = spaces.get("kube-system").await.unwrap().metadata;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
    let wish = serde_json::from_value(json!({ "spec": { "audiences": [] } })).unwrap();
    let token = accounts
        .create_token_request("default", &PostParams::default(), &wish)
        .await
        .unwrap();
    let ca = server.ca().to_owned();
    server.stop().await;

    let server = Server::builder()
        .port(0)
        .data(folder.path())
        .start()
        .await
        .unwrap();
    let spaces: Api<Namespace> = Api::all(server.client());
    let after = spaces.get("kube-system").await.unwrap().metadata;
    assert_eq!(
        (before.uid, before.resource_version),
        (after.uid, after.resource_version)
    );
    assert_eq!(server.ca(), ca);
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig().unwrap()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info = kube::config::AuthInfo {
        token: Some(token.status.unwrap().token.unwrap().into()),
        ..kube::config::AuthInfo::default()
    };
    // The token of before is still good.
    assert!(
        Client::try_from(config)
            .unwrap()
            .apiserver_version()
            .await
            .is_ok()
    );
    // Two servers on one folder would destroy it.
    assert!(Server::builder().data(folder.path()).start().await.is_err());
}
