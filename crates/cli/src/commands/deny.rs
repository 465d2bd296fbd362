//! `writ deny`: the agent of a cluster loses every right at once.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use writ_hub::registration::operator_actions;

use crate::{
    connect::Connection,
    output::{self, Format},
};

/// Deny a cluster: its agent loses every right on the hub at once. What it applied stays.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ deny cluster1\n\n`writ accept cluster1` lets the same agent in again."
)]
pub struct Deny {
    /// The cluster.
    name: String,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Deny {
    pub async fn run(self) -> Result<ExitCode> {
        let client = self.connection.client().await?;
        operator_actions::deny(&client, &self.name).await?;
        let name = &self.name;
        output::value(
            self.output,
            &json!({"cluster": name, "accepted": false}),
            || match self.output {
                Format::Name => format!("managedclusters.cluster.open-cluster-management.io/{name}"),
                _ => format!("{name} is denied"),
            },
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
