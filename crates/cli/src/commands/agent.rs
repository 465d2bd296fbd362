//! `writ agent`

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kube::config::Kubeconfig;
use tokio_util::sync::CancellationToken;
use writ_agent::{
    options::{Authorizers, ExecutorGranularity, NilExecutor, TokenOptions, WorkOptions},
    registration::{identity, joined_before, keep, store::Store},
};

use super::join::HowToJoin;
use crate::{
    connect::Connection,
    process::{self, ProcessFlags},
};

/// How often a missing bootstrap kubeconfig is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Run the agent of a managed cluster: it delivers works, expands grants, keeps accounts and their tokens.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ agent --cluster-name cluster1 --hub-kubeconfig hub.kubeconfig --spoke-kubeconfig cluster1.kubeconfig\n  writ agent --cluster-name cluster1 --bootstrap-kubeconfig bootstrap.kubeconfig --cluster-label region=apac"
)]
#[expect(clippy::struct_field_names, reason = "the flags are named as OCM's")]
pub struct Agent {
    /// The name of this cluster on the hub.
    #[arg(long, visible_alias = "spoke-cluster-name", value_name = "NAME")]
    cluster_name: String,
    /// The kubeconfig of the hub. With a bootstrap kubeconfig: where to keep it; else the Secret `hub-kubeconfig-secret`.
    #[arg(long, value_name = "FILE")]
    hub_kubeconfig: Option<PathBuf>,
    /// Join the hub with this kubeconfig, as `writ join` does; the own identity is kept renewed. A file that is not there
    /// is waited for, unless the agent has an identity from before.
    #[arg(long, value_name = "FILE")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Set this label on the own ManagedCluster, where the agent was given the right; may be repeated.
    #[arg(long = "cluster-label", value_name = "KEY=VALUE", value_parser = label)]
    cluster_labels: Vec<(String, String)>,
    #[command(flatten)]
    how: HowToJoin,
    /// The kubeconfig of the managed cluster; default: this pod's own account.
    #[arg(long, value_name = "FILE")]
    spoke_kubeconfig: Option<PathBuf>,
    /// The identity of this agent among the agents of a cluster; default: known by its hub.
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,
    /// The agent's own namespace on the managed cluster.
    #[arg(long, value_name = "NAME", default_value = "open-cluster-management-agent")]
    agent_namespace: String,
    /// How long what was applied stays after its work is gone from the hub.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    appliedmanifestwork_eviction_grace_period: Duration,
    /// Accepted for compatibility: the agent watches, and has no interval to wait for.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    status_sync_interval: Option<Duration>,
    /// The controllers to run; default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// What happens to works without an executor: allow or deny.
    #[arg(long, default_value = "allow")]
    nil_executor: NilExecutor,
    /// What one refused manifest refuses: work or manifest.
    #[arg(long, default_value = "work")]
    executor_granularity: ExecutorGranularity,
    /// What decides about requests on the managed cluster: rbac, or other for more than RBAC.
    #[arg(long, default_value = "rbac")]
    authorizers: Authorizers,
    /// Where others reach this cluster's API server, for the optional keys of accounts' Secrets.
    #[arg(long, value_name = "URL")]
    api_server_url: Option<String>,
    /// A file with the CA of this cluster's API server, where the ConfigMap kube-root-ca.crt does not tell it.
    #[arg(long, value_name = "FILE")]
    cluster_ca: Option<PathBuf>,
    /// Further ServiceAccounts of the agent's namespace that are never managed as accounts.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    reserved_accounts: Vec<String>,
    #[command(flatten)]
    process: ProcessFlags,
}

impl Agent {
    pub async fn run(self) -> Result<ExitCode> {
        let spoke = Connection {
            kubeconfig: self.spoke_kubeconfig,
            context: None,
        };
        let spoke = spoke.client().await.context("connect to the managed cluster")?;
        let mut tokens = TokenOptions {
            api_server_url: self.api_server_url,
            ..TokenOptions::default()
        };
        tokens.reserved.extend(self.reserved_accounts);
        if let Some(file) = &self.cluster_ca {
            let pem = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            tokens.cluster_ca = Some(pem);
        }
        let store = match &self.hub_kubeconfig {
            Some(file) => Store::File(file.clone()),
            None => Store::Secret {
                client: spoke.clone(),
                namespace: self.agent_namespace.clone(),
            },
        };
        let (health, shutdown) = process::start(&self.process).await?;
        let known = joined_before(&store, &self.cluster_name).await;
        let start = match (&self.bootstrap_kubeconfig, known, &self.hub_kubeconfig) {
            (Some(file), Ok(Some(kept)), _) if !file.exists() => Start::Join(Box::new(kept)),
            (Some(file), ..) => {
                if !appears(file, &shutdown).await {
                    return Ok(ExitCode::SUCCESS);
                }
                Start::Join(Box::new(at(file).read()?))
            }
            (None, Ok(Some(kept)), _) => Start::Join(Box::new(kept)),
            // An identity that was given and not asked for: nothing to renew.
            (None, _, Some(file)) => Start::With(file.clone()),
            (None, known, None) => bail!(
                "there is no identity for the hub in Secret {}/{}{}\nrun `writ join` first, or give --bootstrap-kubeconfig or --hub-kubeconfig",
                self.agent_namespace,
                writ_agent::registration::store::SECRET,
                known.err().map(|e| format!(": {e}")).unwrap_or_default()
            ),
        };
        let hub_server = match &start {
            Start::Join(config) => identity::server(config)
                .map(str::to_owned)
                .context("the current context of the hub's kubeconfig names no server")?,
            Start::With(file) => at(file).server()?,
        };
        let options = writ_agent::Options {
            tokens,
            cluster_name: self.cluster_name.clone(),
            cluster_labels: self.cluster_labels.into_iter().collect(),
            agent_namespace: self.agent_namespace,
            controllers: self.controllers,
            work: WorkOptions {
                hub_server,
                agent_id: self.agent_id,
                eviction_grace_period: self.appliedmanifestwork_eviction_grace_period,
                status_sync_interval: self.status_sync_interval,
                nil_executor: self.nil_executor,
                executor_granularity: self.executor_granularity,
                authorizers: self.authorizers,
                ..WorkOptions::default()
            },
        };
        match start {
            Start::With(file) => {
                let hub = at(&file).client().await.context("connect to the hub")?;
                writ_agent::run(hub, spoke, options, health, shutdown).await?;
            }
            Start::Join(config) => {
                let joining = self.how.joining(self.cluster_name, *config, store)?;
                keep(&joining, shutdown, |hub, until| {
                    writ_agent::run(hub, spoke.clone(), options.clone(), health.clone(), until)
                })
                .await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How the agent comes to its identity on the hub.
enum Start {
    /// It has one, or gets one, and keeps it renewed.
    Join(Box<Kubeconfig>),
    /// It is given one.
    With(PathBuf),
}

/// Waits for a file: in a pod it is a Secret that somebody may make after the agent was installed. Says whether it is
/// there; if not, the agent was told to stop.
async fn appears(file: &Path, shutdown: &CancellationToken) -> bool {
    if !file.exists() {
        tracing::warn!(
            "there is no {} to join the hub with, and no identity from before: waiting for it (in a pod: for the Secret \
             open-cluster-management-agent/bootstrap-hub-kubeconfig; `writ token bootstrap` on the hub prints it)",
            file.display()
        );
    }
    while !file.exists() {
        tokio::select! {
            () = shutdown.cancelled() => return false,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
    true
}

fn at(file: &Path) -> Connection {
    Connection {
        kubeconfig: Some(file.to_owned()),
        context: None,
    }
}

/// A label as people write it.
fn label(text: &str) -> Result<(String, String)> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| anyhow!("{text:?} is not KEY=VALUE"))
}

/// A duration as Go and people write it: `1h`, `90s`, `1h30m0s`.
pub fn duration(text: &str) -> Result<Duration> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|error| anyhow!("{text:?} is no duration such as 90s or 1h30m: {error}"))?;
    Duration::try_from(parsed).map_err(|_| anyhow!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        assert_eq!(duration("1h0m0s").unwrap(), Duration::from_hours(1));
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert!(duration("-1s").unwrap_err().to_string().contains("negative"));
        assert!(duration("soon").unwrap_err().to_string().contains("no duration"));
    }
}
