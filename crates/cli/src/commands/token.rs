//! `writ token`: the tokens that a hub holds for ManagedServiceAccounts.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};

use crate::connect::{Connection, explain};

/// Use the tokens that the hub holds for accounts on managed clusters.
#[derive(Debug, Args)]
pub struct Token {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the token of an account as the ExecCredential that a kubeconfig's `exec` reads.
    ///
    /// The token is printed, in clear, and nowhere else. `writ kubeconfig` writes a kubeconfig that runs this command
    /// whenever a token is needed, so that no file holds one.
    #[command(after_help = "Example:\n  writ token get cluster1 robot")]
    Get(Get),
}

#[derive(Debug, Args)]
struct Get {
    /// The managed cluster.
    cluster: String,
    /// The ManagedServiceAccount in its namespace.
    name: String,
    #[command(flatten)]
    connection: Connection,
}

impl Token {
    pub async fn run(self) -> Result<ExitCode> {
        let Action::Get(get) = self.action;
        let hub = get.connection.client().await?;
        let token = writ_tokens::get(&hub, &get.cluster, &get.name)
            .await
            .map_err(told)?;
        println!("{}", writ_tokens::exec_credential(&token));
        Ok(ExitCode::SUCCESS)
    }
}

/// What went wrong with a token, in the words of the other commands.
pub fn told(error: writ_tokens::Error) -> anyhow::Error {
    match error {
        writ_tokens::Error::Request { what, source } => explain(&what, &source),
        other => anyhow!("{other}"),
    }
}
