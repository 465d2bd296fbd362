//! `writ token`: the tokens that a hub holds for ManagedServiceAccounts, and the one that clusters join with.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use kube::config::AuthInfo;
use writ_agent::registration::identity;
use writ_fleet::fleet::HUB_NAMESPACE;
use writ_process::token;

use crate::{
    connect::{self, Connection, explain},
    flags::duration,
    output::{self, Format},
};

/// The account that new clusters join with, from `deploy/hub/agents.yaml`.
const BOOTSTRAP_ACCOUNT: &str = "agent-registration-bootstrap";

/// Print the tokens that the hub holds for accounts on managed clusters, or what clusters join with.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ token get cluster1 robot -o table\n  writ token bootstrap > bootstrap.kubeconfig"
)]
pub struct Token {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the token of an account as the ExecCredential that a kubeconfig's `exec` reads.
    ///
    /// The token is printed, in clear, and nowhere else. `writ kubeconfig` writes a kubeconfig that runs this command
    /// whenever a token is needed, so that no file holds one. `-o table` tells until when it is valid, and not the token.
    #[command(
        after_help = "Examples:\n  writ token get cluster1 robot\n  writ token get cluster1 robot -o table   # until when, without the token"
    )]
    Get(Get),
    /// Print the kubeconfig that clusters join this hub with. It may be shared: it can ask to be let in, and nothing else.
    #[command(
        after_help = "Example:\n  writ token bootstrap > bootstrap.kubeconfig\n  writ install agent --cluster-name cluster3 --bootstrap-kubeconfig bootstrap.kubeconfig --context cluster3 --apply\n  writ accept cluster3"
    )]
    Bootstrap(Bootstrap),
}

#[derive(Debug, Args)]
struct Get {
    /// The managed cluster.
    cluster: String,
    /// The ManagedServiceAccount in its namespace.
    name: String,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    output: Format,
}

#[derive(Debug, Args)]
struct Bootstrap {
    /// How long clusters can use it to ask; those that are in need it no more.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    duration: Duration,
    /// Where clusters reach the API server of the hub; default: as the kubeconfig names it.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

impl Token {
    pub async fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Get(get) => get.run().await,
            Action::Bootstrap(bootstrap) => bootstrap.run().await,
        }
    }
}

impl Get {
    async fn run(self) -> Result<ExitCode> {
        let hub = self.connection.client().await?;
        let token = writ_tokens::get(&hub, &self.cluster, &self.name)
            .await
            .map_err(explain_token_error)?;
        let (cluster, name) = (&self.cluster, &self.name);
        let expires = token
            .expires
            .map_or_else(|| "unknown".into(), |at| at.to_string());
        output::value(
            self.output,
            &writ_tokens::exec_credential(&token),
            || match self.output {
                Format::Name => {
                    format!("managedserviceaccounts.authentication.open-cluster-management.io/{name}")
                }
                _ => output::table(
                    &["CLUSTER", "ACCOUNT", "VALID UNTIL"],
                    &[vec![cluster.clone(), name.clone(), expires.clone()]],
                ),
            },
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Bootstrap {
    async fn run(self) -> Result<ExitCode> {
        let hub = self.connection.client().await?;
        let seconds = i64::try_from(self.duration.as_secs()).context("the duration is too long")?;
        let token = token::request(&hub, HUB_NAMESPACE, BOOTSTRAP_ACCOUNT, Some(seconds))
            .await
            .map_err(|error| {
                let missing = error.is_code(404);
                let error = anyhow::Error::from(error);
                if missing {
                    anyhow!(
                        "{}\nis this a hub? `writ install hub` makes the account",
                        connect::words(&error)
                    )
                } else {
                    error
                }
            })?;
        let auth = AuthInfo {
            token: Some(token.text.into()),
            ..AuthInfo::default()
        };
        let mine = connect::self_contained(self.connection.chosen()?)?;
        let mut config = identity::kubeconfig(&mine, auth)?;
        if let Some(url) = self.server {
            for cluster in config
                .clusters
                .iter_mut()
                .filter_map(|named| named.cluster.as_mut())
            {
                cluster.server = Some(url.clone());
            }
        }
        output::kubeconfig(self.output, &config)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Explains an error about a token as the other commands do.
pub fn explain_token_error(error: writ_tokens::Error) -> anyhow::Error {
    match error {
        writ_tokens::Error::Request { what, source } => explain(&what, &source),
        other => anyhow!("{other}"),
    }
}
