//! What syncing from Git costs, on a real control plane, next to a bare loop that only sends the writes.
//!
//! `cargo build --release -p writ -p writ-bench && target/release/sync [latency] [throughput] [idle]`

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    config::AuthInfo,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use writ_fleet::{Cluster, Fleet, Kind, git::Repository, manifests};
use writ_testenv::git_http::{self, Access};

const SYSTEM: &str = "config-management-system";
/// The fetch interval of the first part.
const PERIOD: Duration = Duration::from_secs(15);
/// How many objects the second part writes.
const OBJECTS: usize = 5_000;
/// How many requests are under way at once, on both sides.
const WRITERS: usize = 32;
/// How many RootSyncs the third part runs.
const SYNCS: usize = 100;

/// The limits, which this program fails on.
const MAX_AFTER_FETCH: Duration = Duration::from_secs(1);
const MIN_THROUGHPUT: f64 = 0.60;
const MAX_MEMORY: u64 = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wants = |part: &str| asked.is_empty() || asked.iter().any(|asked| asked == part);
    let mut broken = Vec::new();
    println!("| what | measured | limit |");
    println!("| --- | --- | --- |");
    if wants("throughput") {
        broken.extend(throughput().await?);
    }
    if wants("latency") {
        broken.extend(latency().await?);
    }
    if wants("idle") {
        broken.extend(idle().await?);
    }
    if !broken.is_empty() {
        bail!("limits are broken: {}", broken.join(", "));
    }
    Ok(())
}

/// A control plane with the account and the roles of `deploy/sync`.
struct Env {
    cluster: Cluster,
    admin: Client,
    folder: TempDir,
}

impl Env {
    async fn start() -> Result<Self> {
        let cluster = Cluster::start(Kind::Real, "cluster", 0, None, None).await?;
        let admin = cluster.admin().await?;
        manifests::apply_folder(&admin, "sync").await?;
        Ok(Self {
            cluster,
            admin,
            folder: TempDir::new()?,
        })
    }

    fn options(&self) -> writ_sync::Options {
        writ_sync::Options {
            cache: self.folder.path().join("clones"),
            ..writ_sync::Options::default()
        }
    }

    fn syncs(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync");
        Api::namespaced_with(self.admin.clone(), SYSTEM, &ApiResource::from_gvk(&kind))
    }

    async fn root_sync(&self, name: &str, git: Value, roles: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
            "metadata": { "name": name, "namespace": SYSTEM },
            "spec": { "sourceFormat": "unstructured", "git": git, "override": { "roleRefs": roles }},
        });
        let params = PatchParams::apply("bench").force();
        self.syncs().patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// Waits until a commit is applied without errors.
    async fn synced(&self, name: &str, commit: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let object = self.syncs().get(name).await?;
            let status = object.data.get("status").cloned().unwrap_or_default();
            if status.get("lastSyncedCommit").and_then(Value::as_str) == Some(commit) {
                return Ok(());
            }
            if started.elapsed() > Duration::from_mins(4) {
                bail!("{name} is not at {commit}: {status:#}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn namespace(&self, name: &str) -> Result<Api<ConfigMap>> {
        self.cluster.namespace(name).await?;
        Ok(Api::namespaced(self.admin.clone(), name))
    }
}

fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace },
        "data": { "key": value },
    })
}

/// From a push to the object in the cluster, where every push comes right after a fetch: the worst moment.
async fn latency() -> Result<Option<String>> {
    let env = Env::start().await?;
    let _running = Fleet::run_sync_on(&env.cluster, env.options()).await?;
    let maps = env.namespace("latency").await?;
    let repo = Repository::new()?;
    let push = |value: &str| {
        repo.commit(
            "main",
            &[("a.yaml", config_map("latency", "a", value).to_string())],
        )
    };
    let first = push("first")?;
    env.root_sync(
        "latency",
        json!({ "repo": repo.url(), "branch": "main", "auth": "none" }),
        json!([]),
    )
    .await?;
    env.synced("latency", &first).await?;
    let mut worst = Duration::ZERO;
    for round in 0..6 {
        let value = round.to_string();
        let started = Instant::now();
        push(&value)?;
        loop {
            let live = maps.get("a").await?;
            if live.data.is_some_and(|data| data.get("key") == Some(&value)) {
                break;
            }
            ensure!(
                started.elapsed() < Duration::from_mins(1),
                "the push was not applied"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worst = worst.max(started.elapsed());
    }
    let after = worst.saturating_sub(PERIOD);
    println!(
        "| from a push to the object, period {PERIOD:?}, worst of 6 pushes | {worst:.2?} (interval + {after:.2?}) | interval + {MAX_AFTER_FETCH:?} |"
    );
    Ok((after >= MAX_AFTER_FETCH).then(|| "latency".into()))
}

async fn versions(maps: &Api<ConfigMap>) -> Result<BTreeMap<String, String>> {
    let all = maps.list(&ListParams::default()).await?;
    Ok(all
        .into_iter()
        .map(|map| (map.name_any(), map.resource_version().unwrap_or_default()))
        .collect())
}

/// Many objects: once by a loop that only sends the writes, once from Git; then again, when nothing differs.
async fn throughput() -> Result<Option<String>> {
    let env = Env::start().await?;
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("map-{n:05}")).collect();
    let bare = env.namespace("bare").await?;
    let started = Instant::now();
    let failed = stream::iter(&names)
        .map(|name| {
            let bare = &bare;
            let object = config_map("bare", name, "x");
            async move {
                let params = PatchParams::apply("bench");
                bare.patch(name, &params, &Patch::Apply(&object)).await.is_err()
            }
        })
        .buffer_unordered(WRITERS)
        .filter(|failed| std::future::ready(*failed))
        .count()
        .await;
    ensure!(failed == 0, "{failed} writes of the bare loop failed");
    let bare_time = started.elapsed();

    let running = Fleet::run_sync_on(&env.cluster, env.options()).await?;
    let maps = env.namespace("synced").await?;
    let repo = Repository::new()?;
    let mut files: Vec<(String, String)> = names
        .iter()
        .map(|name| {
            (
                format!("maps/{name}.yaml"),
                config_map("synced", name, "x").to_string(),
            )
        })
        .collect();
    let commit = |files: &[(String, String)]| {
        let files: Vec<(&str, String)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.clone()))
            .collect();
        repo.commit("main", &files)
    };
    let git = json!({ "repo": repo.url(), "branch": "main", "auth": "none", "period": "1s" });
    let first = commit(&files)?;
    let started = Instant::now();
    env.root_sync("synced", git, json!([])).await?;
    env.synced("synced", &first).await?;
    let time = started.elapsed();
    let ratio = bare_time.as_secs_f64() / time.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let rate = |time: Duration| OBJECTS as f64 / time.as_secs_f64();
    println!(
        "| {OBJECTS} ConfigMaps, bare loop of server-side applies, {WRITERS} at once | {bare_time:.2?}, {:.0}/s | |",
        rate(bare_time)
    );
    println!(
        "| {OBJECTS} ConfigMaps, from the creation of the RootSync to its last status | {time:.2?}, {:.0}/s, {:.0} % of the bare loop | {:.0} % |",
        rate(time),
        ratio * 100.0,
        MIN_THROUGHPUT * 100.0
    );

    // Another commit with the same objects, and a manager that starts anew: neither may write.
    let before = versions(&maps).await?;
    files.push(("README.md".into(), "nothing".into()));
    let second = commit(&files)?;
    let started = Instant::now();
    env.synced("synced", &second).await?;
    let again = started.elapsed();
    running.stop().await?;
    files.push(("OTHER.md".into(), "nothing".into()));
    let third = commit(&files)?;
    let _running = Fleet::run_sync_on(&env.cluster, env.options()).await?;
    env.synced("synced", &third).await?;
    let after = versions(&maps).await?;
    let written = after
        .iter()
        .filter(|(name, version)| before.get(*name) != Some(*version))
        .count();
    println!(
        "| objects written by a second commit that changes none, and by a restart | {written} (second commit after {again:.2?}) | 0 |"
    );
    let broken = [
        (ratio < MIN_THROUGHPUT, "throughput"),
        (written > 0, "second pass"),
    ];
    let names: Vec<&str> = broken
        .iter()
        .filter(|(broken, _)| *broken)
        .map(|(_, name)| *name)
        .collect();
    Ok((!names.is_empty()).then(|| names.join(", ")))
}

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// A line of `/proc/PID/status`, in KiB.
    fn kib(&self, field: &str) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .with_context(|| format!("no {field}"))?;
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        Ok(digits.parse()?)
    }
}

/// Many RootSyncs that have nothing to do, in one `writ sync`, with clones of repositories on disk.
async fn idle() -> Result<Option<String>> {
    let env = Env::start().await?;
    let program = std::env::current_exe()?.with_file_name("writ");
    ensure!(
        program.is_file(),
        "there is no {}: build -p writ too",
        program.display()
    );
    let token = env.cluster.token(SYSTEM, "writ-sync").await?;
    let kubeconfig = env.cluster.kubeconfig_with(AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    });
    let file: PathBuf = env.folder.path().join("kubeconfig");
    std::fs::write(&file, writ_runtime::yaml::to_string(&kubeconfig)?)?;
    let process = Process(
        Command::new(program)
            .arg("sync")
            .arg("--kubeconfig")
            .arg(&file)
            .arg("--cache")
            .arg(env.folder.path().join("clones"))
            .spawn()?,
    );
    let mut repos = Vec::new();
    let mut commits = Vec::new();
    for n in 0..SYNCS {
        let namespace = format!("idle-{n}");
        env.cluster.namespace(&namespace).await?;
        let objects: Vec<(String, String)> = (0..10)
            .map(|i| {
                let name = format!("object-{i}");
                let object = if i % 2 == 0 {
                    config_map(&namespace, &name, "x")
                } else {
                    json!({
                        "apiVersion": "v1", "kind": "Secret",
                        "metadata": { "name": name, "namespace": namespace }, "stringData": { "key": "x" },
                    })
                };
                (format!("{i}.yaml"), object.to_string())
            })
            .collect();
        let objects: Vec<(&str, String)> = objects
            .iter()
            .map(|(path, text)| (path.as_str(), text.clone()))
            .collect();
        let repo = Repository::new()?;
        commits.push(repo.commit("main", &objects)?);
        repos.push(repo);
    }
    let folder = repos
        .first()
        .and_then(|repo| repo.path().parent())
        .context("no repositories")?;
    let served = git_http::serve(folder.into(), Access::default()).await?;
    let before = process.kib("VmRSS:")?;
    for (n, repo) in repos.iter().enumerate() {
        let name = repo.path().file_name().unwrap_or_default().to_string_lossy();
        let roles = json!([{ "kind": "ClusterRole", "name": "admin", "namespace": format!("idle-{n}") }]);
        let git = json!({ "repo": format!("{}/{name}", served.url), "branch": "main", "auth": "none" });
        env.root_sync(&format!("idle-{n}"), git, roles).await?;
    }
    for (n, commit) in commits.iter().enumerate() {
        env.synced(&format!("idle-{n}"), commit).await?;
    }
    // Three more fetches each: what a fetch leaves behind counts too.
    tokio::time::sleep(PERIOD * 3).await;
    let resident = process.kib("VmRSS:")?;
    let anonymous = process.kib("RssAnon:")?;
    let mib = |kib: u64| kib / 1024;
    println!(
        "| resident memory of `writ sync` with {SYNCS} idle RootSyncs of 10 objects of 2 kinds, clones on disk | {} MiB ({} MiB of it anonymous, {} MiB before the first RootSync) | {MAX_MEMORY} MiB |",
        mib(resident),
        mib(anonymous),
        mib(before)
    );
    Ok((mib(resident) > MAX_MEMORY).then(|| "memory".into()))
}
