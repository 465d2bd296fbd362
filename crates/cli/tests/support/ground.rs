//! A fleet, a folder of kubeconfigs, and the hub as a process with the roles that are shipped.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::PostParams,
    config::{AuthInfo, Kubeconfig},
};
use serde_json::json;
use tokio::process::{Child, Command};
use writ_api::cluster::ManagedCluster;
use writ_fleet::{Cluster, Fleet, Kind, wait};

pub const HUB: &str = "open-cluster-management-hub";
pub const AGENT: &str = "open-cluster-management-agent";

/// A fleet with a folder of kubeconfigs, and the hub running as a process.
pub struct Ground {
    pub fleet: Fleet,
    pub folder: tempfile::TempDir,
    pub admin: Client,
    pub hub: Child,
}

/// What a command said.
pub struct Output {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ground {
    pub async fn start(kind: Kind, hub_flags: &[&str]) -> Result<Self> {
        Self::on(Fleet::start(kind, 1).await?, hub_flags).await
    }

    /// The same on a fleet that was prepared.
    pub async fn on(fleet: Fleet, hub_flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let admin = fleet.hub.admin().await?;
        write(folder.path(), "admin", fleet.hub.kubeconfig())?;
        let spoke = as_account(fleet.cluster(1)?, AGENT, "writ-agent").await?;
        write(folder.path(), "spoke", &spoke)?;
        for (file, account) in [("hub", "writ-hub"), ("bootstrap", "agent-registration-bootstrap")] {
            write(folder.path(), file, &as_account(&fleet.hub, HUB, account).await?)?;
        }
        let hub_file = folder.path().join("hub");
        let mut flags = vec!["hub", "--webhook-listen", "127.0.0.1:0"];
        flags.extend([
            "--controllers",
            "cluster_set,placement,registration",
            "--kubeconfig",
        ]);
        flags.push(hub_file.to_str().context("a path")?);
        flags.extend(hub_flags);
        let hub = spawn(&flags, folder.path().join("hub.log"))?;
        let clusters: Api<ManagedCluster> = Api::all(admin.clone());
        wait::until_true("the hub decides", || async {
            let params = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let bad = ManagedCluster::new("not.a.namespace", serde_json::from_value(json!({}))?);
            let refused = clusters.create(&params, &bad).await;
            Ok(refused.is_err_and(|error| error.to_string().contains("the name of a namespace")))
        })
        .await?;
        Ok(Self {
            fleet,
            folder,
            admin,
            hub,
        })
    }

    /// Where a kubeconfig of this name is.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs the binary on the hub as its administrator.
    pub async fn writ(&self, args: &[&str]) -> Result<Output> {
        let output = command(args)
            .arg("--kubeconfig")
            .arg(self.file("admin"))
            .output()
            .await?;
        Ok(Output {
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Waits until the hub says so of cluster1.
    pub async fn wait_available(&self, wanted: &str) -> Result<()> {
        let clusters: Api<ManagedCluster> = Api::all(self.admin.clone());
        wait::until_true(&format!("cluster1 is available: {wanted}"), || async {
            let conditions = clusters
                .get("cluster1")
                .await?
                .status
                .unwrap_or_default()
                .conditions;
            Ok(conditions
                .iter()
                .any(|c| c.type_ == "ManagedClusterConditionAvailable" && c.status == wanted))
        })
        .await
    }
}

async fn as_account(cluster: &Cluster, namespace: &str, name: &str) -> Result<Kubeconfig> {
    Ok(cluster.kubeconfig_with(AuthInfo {
        token: Some(cluster.token(namespace, name).await?.into()),
        ..AuthInfo::default()
    }))
}

pub fn write(folder: &Path, name: &str, config: &Kubeconfig) -> Result<()> {
    Ok(fs::write(
        folder.join(name),
        writ_runtime::yaml::to_string(config)?,
    )?)
}

/// The binary, with these arguments.
pub fn command(args: &[&str]) -> Command {
    // Where agents are installed they run as the program that has nothing but them.
    let (program, args) = match args.split_first() {
        Some((&"writ-agent", args)) => (env!("CARGO_BIN_EXE_writ-agent"), args),
        _ => (env!("CARGO_BIN_EXE_writ"), args),
    };
    let mut command = Command::new(program);
    command.args(args).env_remove("KUBECONFIG").kill_on_drop(true);
    command
}

/// Starts the binary; what it says goes to a file.
pub fn spawn(args: &[&str], log: PathBuf) -> Result<Child> {
    let log = fs::File::create(log)?;
    Ok(command(args).stdout(Stdio::null()).stderr(log).spawn()?)
}
