//! `writ join`: a managed cluster asks a hub to let it in.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use kube::config::Kubeconfig;
use serde::Serialize;
use writ_agent::registration::{Driver, Joining, join, store};
use writ_api::cluster::managed_cluster::ClientConfig;
use writ_controller::clock::Clock;
use writ_hub::names::{is_namespace_name, reserved};

use super::agent::duration;
use crate::{
    connect::{self, Connection},
    output::{self, Format},
    progress,
};

/// Join a hub: make the ManagedCluster, ask for an identity, wait until somebody accepts, keep the identity.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ join --hub-kubeconfig bootstrap.kubeconfig --cluster-name cluster1\n  writ join --hub-kubeconfig bootstrap.kubeconfig --cluster-name cluster1 --hub-kubeconfig-out hub.kubeconfig\n\nSomebody on the hub then runs `writ accept cluster1`. Run again after an interruption, it goes on where it was.\n\nExit code: 0 once joined, 1 if nobody accepted in time, 2 on an error."
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
    how: HowToJoin,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What `writ join` and `writ agent --bootstrap-kubeconfig` are told alike.
#[derive(Clone, Debug, Args)]
pub struct HowToJoin {
    /// How the hub lets agents prove who they are.
    #[arg(long, value_enum, default_value_t = DriverFlag::Csr)]
    registration_driver: DriverFlag,
    /// Where others reach the API server of this cluster; written on the ManagedCluster.
    #[arg(long, visible_alias = "spoke-external-server-urls", value_name = "URL")]
    spoke_url: Option<String>,
    /// The CA of that API server, in PEM.
    #[arg(long, value_name = "FILE", requires = "spoke_url")]
    spoke_ca: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DriverFlag {
    /// A client certificate, signed by the hub.
    Csr,
    /// A token of the cluster's own account; `writ accept NAME --hub-kubeconfig-out FILE` hands the first one over.
    Token,
}

impl HowToJoin {
    /// What it takes to join with this identity and to keep what comes of it there.
    pub fn joining(&self, cluster: String, bootstrap: Kubeconfig, store: store::Store) -> Result<Joining> {
        let ca_bundle = match &self.spoke_ca {
            None => None,
            Some(file) => {
                let pem = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
                Some(STANDARD.encode(pem))
            }
        };
        let client_configs = self.spoke_url.iter().map(|url| ClientConfig {
            url: url.clone(),
            ca_bundle: ca_bundle.clone(),
        });
        Ok(Joining {
            cluster,
            bootstrap: connect::self_contained(bootstrap)?,
            store,
            client_configs: client_configs.collect(),
            driver: match self.registration_driver {
                DriverFlag::Csr => Driver::Csr,
                DriverFlag::Token => Driver::Token,
            },
            clock: Clock::System,
        })
    }
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
        let bar = progress::spinner(format!("waiting until {cluster} is accepted"));
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
                eprintln!("nobody accepted {cluster} in time; run the same command again to go on waiting");
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

/// The name of a managed cluster, refused here where the hub would refuse it later.
pub fn cluster_name(text: &str) -> Result<String, String> {
    if !is_namespace_name(text) {
        return Err("it is a namespace on the hub too: at most 63 small letters, digits and dashes, a letter or digit first and last".into());
    }
    match reserved(text) {
        Some(why) => Err(format!("no cluster can have this name: {why}")),
        None => Ok(text.into()),
    }
}
