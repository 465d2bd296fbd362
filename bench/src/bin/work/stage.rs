//! Two control planes, and the agent as a process.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PostParams, config::AuthInfo};
use serde_json::json;
use writ_fleet::cluster::install_crds;
use writ_testenv::{ControlPlane, Options, process::Guarded};

/// Who the agent is in an audit log.
pub const AGENT: &str = "bench-agent";

/// One event when a request comes in, and nothing else: watches count when they begin.
const AUDIT_POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- {level: Metadata, users: [bench-agent]}
- {level: None}
";

/// A hub and a managed cluster.
pub struct Stage {
    /// The hub.
    pub hub: ControlPlane,
    /// The managed cluster.
    pub spoke: ControlPlane,
    /// An admin of the hub.
    pub admin: Client,
    /// An admin of the managed cluster.
    pub cluster: Client,
    audits: Option<[tempfile::TempDir; 2]>,
}

impl Stage {
    /// Starts both, with writ's CRDs and a namespace `cluster1` on the hub.
    pub async fn start() -> Result<Self> {
        Self::start_with(None).await
    }

    /// The same, with every request of the agent in an audit log.
    pub async fn audited() -> Result<Self> {
        let folder = || -> Result<tempfile::TempDir> {
            let folder = tempfile::tempdir()?;
            fs::write(folder.path().join("policy.yaml"), AUDIT_POLICY)?;
            Ok(folder)
        };
        Self::start_with(Some([folder()?, folder()?])).await
    }

    async fn start_with(audits: Option<[tempfile::TempDir; 2]>) -> Result<Self> {
        let options = |number: usize| {
            let folder = audits
                .as_ref()
                .and_then(|folders| folders.get(number))
                .map(|folder| folder.path().display().to_string());
            Options {
                apiserver_args: folder.map_or_else(Vec::new, |folder| {
                    vec![
                        format!("--audit-policy-file={folder}/policy.yaml"),
                        format!("--audit-log-path={folder}/audit.log"),
                        "--audit-log-mode=blocking".into(),
                    ]
                }),
                ..Options::default()
            }
        };
        let (hub, spoke) =
            tokio::try_join!(ControlPlane::start(options(0)), ControlPlane::start(options(1)))?;
        let (admin, cluster) = (hub.client()?, spoke.client()?);
        for client in [&admin, &cluster] {
            install_crds(client).await?;
        }
        let stage = Self {
            hub,
            spoke,
            admin,
            cluster,
            audits,
        };
        namespace(&stage.admin, "cluster1").await?;
        Ok(stage)
    }

    /// How many requests of the agent the hub and the managed cluster have logged.
    pub fn requests(&self) -> Result<[Vec<String>; 2]> {
        let audits = self.audits.as_ref().context("no audit log was asked for")?;
        let lines = |folder: &tempfile::TempDir| -> Result<Vec<String>> {
            let text = fs::read_to_string(folder.path().join("audit.log")).unwrap_or_default();
            text.lines()
                .map(|line| {
                    let event: serde_json::Value = serde_json::from_str(line)?;
                    let field = |name: &str| event.get(name).and_then(|v| v.as_str()).unwrap_or_default();
                    Ok(format!("{} {}", field("verb"), field("requestURI")))
                })
                .collect()
        };
        let [hub, spoke] = audits;
        Ok([lines(hub)?, lines(spoke)?])
    }

    /// Starts the agent and waits until it is ready.
    pub async fn agent(&self, controllers: &[&str]) -> Result<Agent> {
        let binary = std::env::current_exe()?.with_file_name("writ-agent");
        ensure!(
            binary.is_file(),
            "{} is not there: cargo build --release -p writ",
            binary.display()
        );
        let log = self.spoke.folder().join("agent.log");
        fs::remove_file(&log).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut args = vec![
            "--cluster-name=cluster1".into(),
            format!("--hub-kubeconfig={}", credentials(&self.hub)?.display()),
            format!("--spoke-kubeconfig={}", credentials(&self.spoke)?.display()),
        ];
        if !controllers.is_empty() {
            args.push(format!("--controllers={}", controllers.join(",")));
        }
        let process = Guarded::spawn(&binary, args, &[("NO_COLOR", "1")], &log)?;
        let started = Instant::now();
        while !fs::read_to_string(&log)?.contains(": ready") {
            ensure!(
                started.elapsed() < Duration::from_mins(1),
                "the agent is not ready after a minute:\n{}",
                fs::read_to_string(&log)?
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Agent { process, log })
    }
}

fn credentials(plane: &ControlPlane) -> Result<PathBuf> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let (certificate, key) = plane.client_certificate(AGENT, "system:masters")?;
    let config = plane.kubeconfig_with(AuthInfo {
        client_certificate_data: Some(STANDARD.encode(certificate)),
        client_key_data: Some(STANDARD.encode(key).into()),
        ..AuthInfo::default()
    });
    let file = plane.folder().join("agent.kubeconfig");
    fs::write(&file, serde_json::to_vec(&config)?)?;
    Ok(file)
}

/// The agent. It ends when it is dropped.
pub struct Agent {
    process: Guarded,
    log: PathBuf,
}

impl Agent {
    /// Resident memory in MiB: now, and the most it ever was.
    pub fn memory(&self) -> Result<(f64, f64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()?))?;
        let field = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib: f64 = line
                .and_then(|line| line.split_whitespace().next())
                .context("no memory in /proc")?
                .parse()?;
            Ok(kib / 1024.0)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// Processor time so far, in seconds.
    pub fn processor(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()?))?;
        let after = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|t| t.parse::<f64>().ok());
        Ok((ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / 100.0)
    }

    /// What it said.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }
}

/// Creates a namespace.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}
