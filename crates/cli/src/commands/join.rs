//! `writ join`: a managed cluster asks a hub to let it in.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use writ_agent::registration::{join, store};

use crate::{
    connect::Connection,
    flags::{JoinFlags, cluster_name, duration},
    output::{self, Format},
    terminal,
};

/// Join a hub: make the ManagedCluster, ask for an identity, wait until it is accepted, keep the identity.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ join --hub-kubeconfig bootstrap.kubeconfig --cluster-name cluster1\n  writ join --hub-kubeconfig bootstrap.kubeconfig --cluster-name cluster1 --hub-kubeconfig-out hub.kubeconfig\n\nAn administrator of the hub then runs `writ accept cluster1`. Run again after an interruption, it continues.\n\nExit code: 0 once joined, 1 if it was not accepted in time, 2 on an error."
)]
pub struct Join {
    /// A kubeconfig of the hub with the bootstrap identity.
    #[arg(long, value_name = "FILE")]
    hub_kubeconfig: PathBuf,
    /// The name of this cluster on the hub.
    #[arg(long, visible_alias = "spoke-cluster-name", value_name = "NAME", value_parser = cluster_name)]
    cluster_name: String,
    /// Keep the hub kubeconfig in this file; default: in the Secret `hub-kubeconfig-secret` of the agent's namespace.
    #[arg(long, value_name = "FILE")]
    hub_kubeconfig_out: Option<PathBuf>,
    /// The agent's own namespace on this cluster.
    #[arg(long, value_name = "NAME", default_value = "open-cluster-management-agent")]
    agent_namespace: String,
    /// Give up after this time; default: wait.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    how: JoinFlags,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Serialize)]
struct Joined {
    cluster: String,
    kept: String,
}

impl Join {
    pub async fn run(self) -> Result<ExitCode> {
        let bootstrap = Connection {
            kubeconfig: Some(self.hub_kubeconfig),
            context: None,
        };
        let (store, kept) = if let Some(file) = self.hub_kubeconfig_out {
            let kept = file.display().to_string();
            (store::Store::File(file), kept)
        } else {
            let client = self.connection.client().await.context(
                "connect to this cluster, to keep the identity in a Secret (or use --hub-kubeconfig-out)",
            )?;
            let kept = format!("Secret {}/{}", self.agent_namespace, store::SECRET);
            let namespace = self.agent_namespace;
            (store::Store::Secret { client, namespace }, kept)
        };
        let joining = self
            .how
            .joining(self.cluster_name.clone(), bootstrap.read()?, store)?;
        let cluster = self.cluster_name;
        eprintln!("joining as {cluster}; on the hub, `writ accept {cluster}` lets it in");
        let bar = terminal::spinner(format!("waiting until {cluster} is accepted"));
        let joined = async {
            match self.timeout {
                Some(time) => tokio::time::timeout(time, join(&joining)).await,
                None => Ok(join(&joining).await),
            }
        };
        let joined = joined.await;
        bar.finish_and_clear();
        match joined {
            Err(_) => {
                eprintln!("{cluster} was not accepted in time; run the same command again to keep waiting");
                return Ok(ExitCode::FAILURE);
            }
            Ok(joined) => {
                joined.context("join the hub")?;
            }
        }
        let joined = Joined { cluster, kept };
        output::value(self.output, &joined, || match self.output {
            Format::Name => format!(
                "managedclusters.cluster.open-cluster-management.io/{}",
                joined.cluster
            ),
            _ => format!(
                "{} joined; its hub kubeconfig is in {}",
                joined.cluster, joined.kept
            ),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
