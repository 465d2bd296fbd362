//! What was acknowledged is still there after the process is killed in the middle of writes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
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

/// A server in a process of its own. It ends with the test, however that ends: whoever reads what tests print waits for it.
struct Running(Child);

impl std::ops::Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn start(folder: &Path) -> (Running, Client) {
    start_by(Command::new(std::env::current_exe().unwrap()), folder).await
}

/// Starts a child with a command to which the arguments of this program are added.
async fn start_by(mut command: Command, folder: &Path) -> (Running, Client) {
    let kubeconfig = folder.join("kubeconfig");
    drop(std::fs::remove_file(&kubeconfig));
    let child = command
        .args(["--exact", "child"])
        .env(CHILD, folder)
        .stdout(Stdio::null())
        .spawn()
        .map(Running)
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

/// What one writer knows of its objects: the number that was acknowledged last, none once a deletion was. What was under way
/// when the server died is in doubt, and forgotten.
type Known = BTreeMap<String, Option<u64>>;

/// Creates, updates and deletes until the server is gone, and counts what was acknowledged.
async fn write(maps: Api<ConfigMap>, prefix: String, count: Arc<AtomicUsize>) -> Known {
    let mut known = Known::new();
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let map = json!({ "metadata": { "name": name }, "data": { "n": "0" } });
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        if maps.create(&PostParams::default(), &map).await.is_err() {
            break;
        }
        known.insert(name.clone(), Some(0));
        count.fetch_add(1, Ordering::Relaxed);
        for n in 1..3u64 {
            let patch = Patch::Merge(json!({ "data": { "n": n.to_string() } }));
            if maps.patch(&name, &PatchParams::default(), &patch).await.is_err() {
                known.remove(&name);
                return known;
            }
            known.insert(name.clone(), Some(n));
            count.fetch_add(1, Ordering::Relaxed);
        }
        if number % 2 == 0 {
            if maps.delete(&name, &DeleteParams::default()).await.is_err() {
                known.remove(&name);
                return known;
            }
            known.insert(name, None);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    known
}

/// The newest version that a watcher heard of, on disk or not, until the server was gone.
async fn listen(maps: Api<ConfigMap>) -> u64 {
    let mut newest = 0;
    let Ok(events) = maps.watch(&WatchParams::default(), "0").await else {
        return newest;
    };
    let mut events = events.boxed();
    while let Some(Ok(event)) = events.next().await {
        if let WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) = event {
            newest = newest.max(version(map.metadata.resource_version.as_deref()));
        }
    }
    newest
}

fn version(text: Option<&str>) -> u64 {
    text.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = Known::new();
    let mut newest = 0;
    for round in 0..3 {
        let (mut child, client) = start(folder.path()).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let now = maps.list(&ListParams::default()).await.unwrap().metadata;
        // No version that anybody ever saw is given to something else.
        assert!(version(now.resource_version.as_deref()) > newest);
        let count = Arc::new(AtomicUsize::new(0));
        let listener = tokio::spawn(listen(maps.clone()));
        let writers: Vec<_> = (0..4)
            .map(|writer| tokio::spawn(write(maps.clone(), format!("m-{round}-{writer}"), count.clone())))
            .collect();
        let deadline = Instant::now() + Duration::from_secs(30);
        while count.load(Ordering::Relaxed) < 40 {
            assert!(Instant::now() < deadline, "too few writes are acknowledged");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for writer in writers {
            known.extend(writer.await.unwrap());
        }
        newest = newest.max(listener.await.unwrap());
    }
    let server = Server::builder()
        .data(folder.path().join("data"))
        .start()
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let list = maps.list(&ListParams::default()).await.unwrap();
    let there: Known = list
        .items
        .into_iter()
        .filter_map(|map| {
            let number = map.data.unwrap_or_default().get("n")?.parse().ok()?;
            Some((map.metadata.name?, Some(number)))
        })
        .collect();
    for (name, number) in &known {
        assert_eq!(there.get(name).copied().flatten(), *number, "{name}");
    }
    assert!(known.values().any(Option::is_none) && known.values().any(Option::is_some));
    assert!(version(list.metadata.resource_version.as_deref()) > newest);
    assert_eq!(watch_code(&maps, &newest.to_string()).await, Some(410));
    server.stop().await;
}

/// The code with which a watch is refused, at once or by its first event.
async fn watch_code<K>(api: &Api<K>, start: &str) -> Option<u16>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.watch(&WatchParams::default().timeout(1), start).await {
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(other) => panic!("{other}"),
        Ok(events) => match events.boxed().next().await {
            Some(Ok(WatchEvent::Error(status))) => Some(status.code),
            _ => None,
        },
    }
}

/// What was deleted is not in the folder, and its table may be empty: those who watched must hear of it nevertheless.
#[tokio::test]
async fn watches_from_before_a_restart_end() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().data(folder.path()).start().await.unwrap();
    let leases: Api<Lease> = Api::default_namespaced(server.client());
    let lease: Lease = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    let made = leases.create(&PostParams::default(), &lease).await.unwrap();
    let start = made.metadata.resource_version.unwrap();
    leases.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(watch_code(&leases, &start).await, None);
    server.stop().await;

    let server = Server::builder().data(folder.path()).start().await.unwrap();
    let leases: Api<Lease> = Api::default_namespaced(server.client());
    assert_eq!(watch_code(&leases, &start).await, Some(410));
    let now = leases.list(&ListParams::default()).await.unwrap().metadata;
    assert_eq!(watch_code(&leases, &now.resource_version.unwrap()).await, None);
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

/// The code and the text of an error of the API.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

/// A limit to the size of files is a disk that is full.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_takes_no_more_and_shows_nothing_that_it_does_not_keep() {
    let folder = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 16384; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap());
    let (mut child, client) = start_by(limited, folder.path()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = |name: &str| -> ConfigMap {
        let map = json!({ "metadata": { "name": name }, "data": { "a": "x".repeat(900_000) } });
        serde_json::from_value(map).unwrap()
    };
    let params = PostParams::default();
    let mut kept = Vec::new();
    let (code, why) = loop {
        let name = format!("m-{}", kept.len());
        match maps.create(&params, &map(&name)).await {
            Ok(_) => kept.push(name),
            refused => break refusal(refused),
        }
        assert!(kept.len() < 100, "the disk is never full");
    };
    assert_eq!(code, 500, "{why}");
    assert!(why.contains("the data folder"), "{why}");
    assert!(!kept.is_empty());

    // From now on it changes nothing, and says so; what is there can be read.
    assert_eq!(refusal(maps.create(&params, &map("late")).await).0, 500);
    assert_eq!(refusal(maps.get("late").await).0, 404);
    let patch = Patch::Merge(json!({ "data": { "a": "y" } }));
    assert_eq!(
        refusal(maps.patch("m-0", &PatchParams::default(), &patch).await).0,
        500
    );
    assert_eq!(refusal(maps.delete("m-0", &DeleteParams::default()).await).0, 500);
    let first = maps.get("m-0").await.unwrap().data.unwrap();
    assert_eq!(first["a"].len(), 900_000);
    let ask = |path: &str| client.request_text(http::Request::get(path).body(Vec::new()).unwrap());
    let unwell = ask("/readyz").await.unwrap_err().to_string();
    assert!(unwell.contains("[-]etcd failed: reason withheld"), "{unwell}");
    assert_eq!(ask("/readyz?exclude=etcd").await.unwrap(), "ok");
    child.kill().unwrap();
    child.wait().unwrap();

    let (mut child, client) = start(folder.path()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in &kept {
        assert!(maps.get(name).await.is_ok(), "{name}");
    }
    assert!(maps.create(&params, &map("late")).await.is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
}
