//! The control plane itself: it starts, several at once, answers as RBAC says, and leaves nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::KubeConfigOptions,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    process::Command,
};
use writ_testenv::{ControlPlane, Options, harness};

/// Tells a second process of this test to hold a control plane until it is killed.
const HOLD: &str = "WRIT_TEST_HOLDS_A_CONTROL_PLANE";

fn main() {
    if std::env::var_os(HOLD).is_some() {
        hold();
    }
    harness::run(vec![
        harness::real("three_control_planes_start_in_parallel", three_in_parallel),
        harness::real("users_have_their_own_rights", users_have_their_own_rights),
        harness::real("data_outlives_a_restart", data_outlives_a_restart),
        harness::real("the_store_opens_to_nobody_else", the_store_is_closed),
        harness::real("a_killed_process_leaves_nothing_behind", killed),
    ]);
}

#[tokio::main]
async fn hold() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    println!("{}", plane.url());
    std::future::pending::<()>().await;
}

/// Every process below this one, by id.
fn descendants(of: &str) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let below = children
        .split_whitespace()
        .flat_map(|child| [vec![child.to_owned()], descendants(child)].concat());
    below.collect()
}

fn is_running(pid: &str) -> bool {
    // One that ended and that nobody has waited for yet counts as gone.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A process that holds a control plane is killed, with no chance to clean up.
async fn killed() -> Result<()> {
    let mut holder = Command::new(std::env::current_exe()?)
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    let url = said.next_line().await?.context("no control plane was started")?;
    let address = url.trim_start_matches("https://").to_owned();
    TcpStream::connect(&address).await?;
    let id = holder.id().unwrap();
    let mut left = started_by(id)?;
    // The controller manager is the last to start, and nobody waits for it.
    let complete = async {
        while ["etcd", "kube-apiserver", "kube-controller-manager"]
            .iter()
            .any(|name| left.iter().filter(|pid| is_named(pid, name)).count() != 1)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
            left = started_by(id)?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(20), complete)
        .await
        .context("not all of a control plane runs")??;
    holder.kill().await?;
    let gone = async {
        while left.iter().any(|pid| is_running(pid)) || TcpStream::connect(&address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .context("something outlived the process that started it")
}

/// Everything that a process and its children started. Children belong to the thread that started them.
fn started_by(id: u32) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let children = fs::read_to_string(thread?.path().join("children"))?;
        for child in children.split_whitespace() {
            all.push(child.to_owned());
            all.extend(descendants(child));
        }
    }
    Ok(all)
}

/// Whether this is the name of a process; its own is cut after 15 characters.
fn is_named(pid: &str, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|comm| name.get(..15).unwrap_or(name) == comm.trim())
}

async fn three_in_parallel() -> Result<()> {
    let start = || ControlPlane::start(Options::default());
    let (hub, one, two) = tokio::try_join!(start(), start(), start())?;
    for plane in [&hub, &one, &two] {
        let namespaces = Api::<Namespace>::all(plane.client()?)
            .list(&ListParams::default())
            .await?;
        ensure!(
            namespaces
                .iter()
                .any(|namespace| namespace.name_any() == "kube-system")
        );
    }
    ensure!(hub.url() != one.url());
    Ok(())
}

async fn users_have_their_own_rights() -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let alice = plane.client_as("alice", &["team-a"])?;
    let refused = Api::<Namespace>::all(alice)
        .list(&ListParams::default())
        .await
        .unwrap_err();
    ensure!(
        refused
            .to_string()
            .contains("User \"alice\" cannot list resource \"namespaces\""),
        "{refused}"
    );
    let (cert, key) = plane.client_certificate("bob", "team-b")?;
    ensure!(cert.contains("BEGIN CERTIFICATE") && key.contains("PRIVATE KEY"));
    Ok(())
}

/// The folder, and in it every key and what holds one.
fn only_the_owner_reads(folder: &Path) -> Result<()> {
    let mode = |path: &Path| anyhow::Ok(fs::metadata(path)?.permissions().mode() & 0o777);
    ensure!(mode(folder)? == 0o700, "{:o}", mode(folder)?);
    let mut keys = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY")) {
            ensure!(mode(&path)? == 0o600, "{}: {:o}", path.display(), mode(&path)?);
            keys += 1;
        }
    }
    ensure!(keys >= 3, "only {keys} keys found");
    ensure!(mode(&folder.join("admin.kubeconfig"))? == 0o600);
    Ok(())
}

async fn data_outlives_a_restart() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        controllers: false,
        data: Some(folder.path().into()),
        ..Options::default()
    };
    let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}}))?;
    let plane = ControlPlane::start(options.clone()).await?;
    Api::<ConfigMap>::namespaced(plane.client()?, "default")
        .create(&PostParams::default(), &map)
        .await?;
    let second = ControlPlane::start(options.clone()).await.map(drop);
    ensure!(
        second.is_err_and(|error| error.to_string().contains("is in use")),
        "two control planes on one folder"
    );
    drop(plane);
    let plane = ControlPlane::start(options).await?;
    only_the_owner_reads(folder.path())?;
    Api::<ConfigMap>::namespaced(plane.client()?, "default")
        .get("kept")
        .await?;
    Ok(())
}

/// Whoever reads and writes etcd has every right: not even the cluster's own admin certificate opens it.
async fn the_store_is_closed() -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    only_the_owner_reads(plane.folder())?;
    let url = fs::read_dir("/proc")?
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| line.contains(&*plane.folder().to_string_lossy()))
        .find_map(|line| {
            let url = line
                .split('\0')
                .find_map(|arg| arg.strip_prefix("--listen-client-urls="));
            url.map(str::to_owned)
        })
        .context("no etcd")?;
    let options = KubeConfigOptions::default();
    let admin = Config::from_custom_kubeconfig(plane.kubeconfig().clone(), &options).await?;
    for with_certificate in [true, false] {
        let mut config = Config::new(url.parse()?);
        config.accept_invalid_certs = true;
        if with_certificate {
            config.auth_info = admin.auth_info.clone();
        }
        let answer = Client::try_from(config)?
            .request_text(http::Request::get("/health").body(Vec::new())?)
            .await;
        ensure!(answer.is_err(), "etcd answers: {answer:?}");
    }
    Ok(())
}
