//! `writ hub`

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::{
    connect::Connection,
    process::{self, ProcessFlags},
};

/// Run the controllers and the admission of a hub.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ hub --kubeconfig hub.kubeconfig")]
pub struct Hub {
    #[command(flatten)]
    connection: Connection,
    /// The controllers to run; default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// Act alone, without asking whether another replica acts already.
    #[arg(long)]
    no_leader_election: bool,
    /// Who evaluates the namespace selectors of ClusterPermissions.
    #[arg(long, value_enum, default_value_t = NamespaceSelector::Auto)]
    namespace_selector: NamespaceSelector,
    /// The executor of the works of ClusterPermissions, for agents that deny works without one.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    permission_executor: Option<String>,
    #[command(flatten)]
    process: ProcessFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NamespaceSelector {
    /// The agent where it says that it can, the hub elsewhere.
    Auto,
    /// The agent, over the namespaces of the managed cluster.
    Agent,
    /// The hub, over its own namespaces, as upstream does.
    Hub,
}

impl Hub {
    pub async fn run(self) -> Result<ExitCode> {
        let client = self.connection.client().await?;
        #[allow(
            clippy::needless_update,
            reason = "a new option of the hub must not need a change here"
        )]
        let options = writ_hub::Options {
            controllers: self.controllers,
            leader_election: (!self.no_leader_election).then(process::identity),
            namespace_selector: match self.namespace_selector {
                NamespaceSelector::Auto => writ_hub::options::NamespaceSelector::Auto,
                NamespaceSelector::Agent => writ_hub::options::NamespaceSelector::Agent,
                NamespaceSelector::Hub => writ_hub::options::NamespaceSelector::Hub,
            },
            permission_executor: self.permission_executor,
            ..writ_hub::Options::default()
        };
        let (health, shutdown) = process::start(&self.process).await?;
        writ_hub::run(client, options, health, shutdown).await?;
        Ok(ExitCode::SUCCESS)
    }
}
