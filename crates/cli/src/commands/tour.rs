//! `writ tour`

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use writ_fleet::{
    Fleet, Kind,
    fleet::{Options, has_context},
};

use crate::{connect::Connection, tour};

/// Walk through the five design documents on a fleet, with a proof at every step.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ tour --yes          # on the fleet of `writ up`, if KUBECONFIG names one, else on one of its own\n  writ tour --yes --real   # on real control planes of its own\n\nExit code: 0 if every proof holds, 1 if one fails, 2 on an error."
)]
pub struct Tour {
    /// Run through without waiting for Enter.
    #[arg(short, long)]
    yes: bool,
    /// Start a fleet of real control planes, instead of using the running one.
    #[arg(long)]
    real: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Tour {
    pub async fn run(self) -> Result<ExitCode> {
        let running = self.connection.read().ok().filter(|kubeconfig| {
            !self.real && has_context(kubeconfig, "hub") && has_context(kubeconfig, "cluster1")
        });
        let held = match running {
            Some(kubeconfig) => {
                println!("Using the fleet that runs.");
                tour::walk(&Fleet::attach(&kubeconfig).await?, self.yes).await?
            }
            None => self.own().await?,
        };
        Ok(if held {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn own(&self) -> Result<bool> {
        println!("Starting a hub and a managed cluster.");
        let kind = if self.real { Kind::Real } else { Kind::Embedded };
        let fleet = Fleet::start_with(Options {
            kind,
            clusters: 1,
            port_base: None,
            data: None,
            recorder: None,
        })
        .await?;
        let scratch = tempfile::Builder::new().prefix("writ-tour-").tempdir()?;
        let running = fleet.run_everything(scratch.path()).await?;
        let held = tour::walk(&fleet, self.yes).await;
        running.stop().await?;
        held
    }
}
