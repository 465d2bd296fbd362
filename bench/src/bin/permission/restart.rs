//! A hub process that starts with many permissions and finds nothing to do: it writes nothing, is ready soon and
//! stays small. The process is `writ hub` in the build that this bench belongs to.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use writ_api::{cluster::ManagedCluster, rbac::ClusterPermission, work::ManifestWork};
use writ_fleet::cluster::install_crds;
use writ_testenv::{ControlPlane, Options};

const CLUSTERS: usize = 500;
const PERMISSIONS: usize = 5000;
const READY_WITHIN: Duration = Duration::from_secs(5);
const MEMORY: u64 = 100 << 20;

/// What was measured.
pub struct Measured {
    ready: Duration,
    served: Duration,
    writes: u64,
    peak: u64,
    resident: u64,
}

impl Measured {
    /// Prints a table and says which limits are broken.
    pub fn report(&self) -> Vec<String> {
        let mib = |bytes: u64| bytes >> 20;
        println!("\n| restart, {PERMISSIONS} permissions on {CLUSTERS} clusters | measured | limit |");
        println!("| --- | --- | --- |");
        println!(
            "| from the start of the process until every watch is initialised | {:.2?} | {READY_WITHIN:?} |",
            self.ready
        );
        println!(
            "| until a permission that is new has its work | {:.2?} | |",
            self.served
        );
        println!("| writes | {} | 0 |", self.writes);
        println!(
            "| resident memory, peak | {} MiB | {} MiB |",
            mib(self.peak),
            mib(MEMORY)
        );
        println!("| resident memory, 10 s later | {} MiB | |", mib(self.resident));
        let broken = [
            (self.ready > READY_WITHIN, "ready too late after a restart"),
            (self.writes > 0, "writes after a restart"),
            (self.peak > MEMORY, "too much memory after a restart"),
        ];
        let broken = broken.iter().filter(|(broken, _)| *broken);
        broken.map(|(_, what)| (*what).to_owned()).collect()
    }
}

/// Fills a hub, lets a hub process settle, and starts it again.
pub async fn measure() -> Result<Measured> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let admin = plane.client()?;
    install_crds(&admin).await?;
    fill(&admin).await?;

    let first = Process::start(plane.kubeconfig_file())?;
    first.ready().await?;
    applied_by_agents(&admin).await?;
    settled(&admin).await?;
    drop(first);

    let before = writes(&admin).await?;
    let started = Instant::now();
    let process = Process::start(plane.kubeconfig_file())?;
    process.ready().await?;
    let ready = started.elapsed();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (peak, resident) = (process.memory("VmHWM")?, process.memory("VmRSS")?);
    let written = writes(&admin).await? - before;
    drop(process);

    // Once more, with something to do: the queue of everything else must not be in its way for long.
    let started = Instant::now();
    let _process = Process::start(plane.kubeconfig_file())?;
    let fresh = permission("fresh");
    let api: Api<ClusterPermission> = Api::namespaced(admin.clone(), &cluster(7));
    let fresh = api
        .create(&PostParams::default(), &serde_json::from_value(fresh)?)
        .await?;
    let works: Api<ManifestWork> = Api::namespaced(admin, &cluster(7));
    let uid: String = fresh.uid().unwrap_or_default().chars().take(5).collect();
    while works.get_opt(&format!("fresh-{uid}")).await?.is_none() {
        ensure!(
            started.elapsed() < Duration::from_mins(1),
            "no work after a minute"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Measured {
        ready,
        served: started.elapsed(),
        writes: written,
        peak,
        resident,
    })
}

fn cluster(number: usize) -> String {
    format!("cluster{}", number % CLUSTERS)
}

fn permission(name: &str) -> Value {
    let binding = |n: usize| {
        json!({"namespace": format!("team-{n}"), "name": format!("{name}-{n}"), "roleRef": super::role_ref(),
        "subject": super::subject(&format!("user-{n}"))})
    };
    json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
    "metadata": {"name": name}, "spec": {
        "clusterRole": {"rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]}]},
        "clusterRoleBinding": {"subject": super::subject("auditor")},
        "roleBindings": (0..3).map(binding).collect::<Vec<_>>(),
    }})
}

async fn fill(admin: &Client) -> Result<()> {
    let clusters = (0..CLUSTERS).map(|n| async move {
        let name = cluster(n);
        super::namespace(admin, &name).await?;
        let object: ManagedCluster = serde_json::from_value(
            json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": name}, "spec": {"hubAcceptsClient": true}}),
        )?;
        let api: Api<ManagedCluster> = Api::all(admin.clone());
        api.create(&PostParams::default(), &object).await?;
        let status = json!({"status": {"conditions": [{"type": "ManagedClusterConditionAvailable", "status": "True",
            "reason": "Up", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        anyhow::Ok(())
    });
    stream::iter(clusters)
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    let permissions = (0..PERMISSIONS).map(|n| async move {
        let object: ClusterPermission = serde_json::from_value(permission(&format!("p{n}")))?;
        let api: Api<ClusterPermission> = Api::namespaced(admin.clone(), &cluster(n));
        api.create(&PostParams::default(), &object).await?;
        anyhow::Ok(())
    });
    stream::iter(permissions)
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Every work, once all are there.
async fn works(admin: &Client) -> Result<Vec<ManifestWork>> {
    let api: Api<ManifestWork> = Api::all(admin.clone());
    let started = Instant::now();
    loop {
        let works = api.list(&ListParams::default()).await?.items;
        if works.len() == PERMISSIONS {
            return Ok(works);
        }
        ensure!(
            started.elapsed() < Duration::from_mins(3),
            "{} works after three minutes",
            works.len()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Reports every work as applied, as agents do.
async fn applied_by_agents(admin: &Client) -> Result<()> {
    let reports = works(admin).await?.into_iter().map(|work| async move {
        let condition = json!({"type": "Applied", "status": "True", "reason": "AppliedManifestWorkComplete",
            "message": "Apply manifest work complete", "observedGeneration": work.metadata.generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let manifests: Vec<Value> = work
            .spec
            .workload
            .manifests
            .iter()
            .enumerate()
            .map(|(ordinal, manifest)| {
                let text = |pointer: &str| {
                    manifest
                        .0
                        .pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                json!({"conditions": [condition], "resourceMeta": {"ordinal": ordinal, "kind": text("/kind"),
                    "namespace": text("/metadata/namespace"), "name": text("/metadata/name")}})
            })
            .collect();
        let api: Api<ManifestWork> = Api::namespaced(admin.clone(), &work.namespace().unwrap_or_default());
        let status =
            json!({"status": {"conditions": [condition], "resourceStatus": {"manifests": manifests}}});
        api.patch_status(&work.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await?;
        anyhow::Ok(())
    });
    stream::iter(reports)
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Waits until every permission says that it is ready.
async fn settled(admin: &Client) -> Result<()> {
    let api: Api<ClusterPermission> = Api::all(admin.clone());
    let started = Instant::now();
    loop {
        let permissions = api.list(&ListParams::default()).await?.items;
        let ready = permissions.iter().filter(|permission| {
            let conditions = permission.status.iter().flat_map(|status| &status.conditions);
            conditions
                .into_iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        });
        let ready = ready.count();
        if ready == PERMISSIONS {
            return Ok(());
        }
        ensure!(
            started.elapsed() < Duration::from_mins(3),
            "{ready} ready after three minutes"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// How many requests to change something of ours the API server has answered so far.
async fn writes(admin: &Client) -> Result<u64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = admin.request_text(request).await?;
    let mut count = 0.0;
    for line in text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
    {
        let is = |label: &str, values: &[&str]| {
            values
                .iter()
                .any(|value| line.contains(&format!("{label}=\"{value}\"")))
        };
        if is("resource", &["manifestworks", "clusterpermissions"])
            && is(
                "verb",
                &["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"],
            )
        {
            let number = line.rsplit(' ').next().unwrap_or_default();
            count += number.parse::<f64>().with_context(|| format!("read {line:?}"))?;
        }
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of requests"
    )]
    Ok(count as u64)
}

/// A hub process; it ends when this is dropped.
struct Process {
    child: Child,
    health: SocketAddr,
}

impl Process {
    fn start(kubeconfig: &Path) -> Result<Self> {
        let binary = std::env::current_exe()?.with_file_name("writ");
        ensure!(
            binary.exists(),
            "{} is not there: build the package `writ` in the same profile",
            binary.display()
        );
        let health = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let child = Command::new(binary)
            .args(["hub", "--controllers=cluster_permission", "--webhooks=off"])
            .arg("--no-leader-election")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--health-address={health}"))
            .env("WRIT_LOG", "error")
            .stdout(Stdio::null())
            .spawn()
            .context("start the hub")?;
        Ok(Self { child, health })
    }

    async fn ready(&self) -> Result<()> {
        let started = Instant::now();
        while !self.answers().await.unwrap_or(false) {
            if started.elapsed() > Duration::from_mins(1) {
                bail!("the hub is not ready after a minute");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn answers(&self) -> Result<bool> {
        let mut stream = tokio::net::TcpStream::connect(self.health).await?;
        stream
            .write_all(b"GET /readyz HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    }

    /// A line of the process's status, in bytes.
    fn memory(&self, line: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let found = status
            .lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))
            .context("the process tells no memory")?;
        let kib: u64 = found.trim().trim_end_matches(" kB").parse()?;
        Ok(kib << 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do about it here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
