//! `writ tour`

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use kube::config::Kubeconfig;
use tokio_util::sync::CancellationToken;
use writ_fleet::{
    Fleet, Kind,
    fleet::{Options, has_context},
};
use writ_process::private;
use writ_process::supervise;

use crate::{
    connect::{Connection, words},
    daemon,
    flags::duration,
    terminal,
    tour::{self, End},
};

/// How long an existing fleet may take to answer.
const ALIVE: Duration = Duration::from_secs(5);

/// Walk through the five design documents on a fleet, with a proof at every step.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ tour --yes          # on the fleet of `writ up`, if KUBECONFIG names one that runs, else on one of its own\n  writ tour --yes --real   # on real control planes of its own\n\nExit code: 0 if every proof holds, 1 if one fails, 2 on an error, 130 if it was interrupted; then it leaves nothing behind."
)]
pub struct Tour {
    /// Run through without waiting for Enter; implied if standard input is not a terminal.
    #[arg(short, long)]
    yes: bool,
    /// Start a fleet of real control planes, instead of using the running one.
    #[arg(long)]
    real: bool,
    /// The kubeconfig of a fleet, with the contexts `writ-hub`, `writ-cluster1`, ...; default: `KUBECONFIG`.
    #[arg(long, value_name = "FILE", conflicts_with = "real")]
    kubeconfig: Option<PathBuf>,
    /// How long a proof may take.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    timeout: Duration,
}

impl Tour {
    pub async fn run(self) -> Result<ExitCode> {
        let stop = supervise::shutdown_on_signal()?;
        let end = tokio::select! {
            end = self.walk(&stop) => end?,
            // A second Ctrl-C skips the cleanup; a fleet started by the tour ends with the process anyway.
            () = daemon::second_interrupt(&stop) => End::Stopped,
        };
        Ok(match end {
            End::Held => ExitCode::SUCCESS,
            End::Failed => ExitCode::FAILURE,
            // A thread may still wait for Enter on standard input, and only the end of the process stops it.
            End::Stopped => std::process::exit(daemon::INTERRUPTED.into()),
        })
    }

    async fn walk(&self, stop: &CancellationToken) -> Result<End> {
        match self.existing_fleet().await? {
            Some(fleet) => {
                println!("Using the fleet that runs.");
                tour::walk(&fleet, self.yes, self.timeout, stop).await
            }
            None => self.walk_on_own_fleet(stop).await,
        }
    }

    /// The fleet that the kubeconfig names, if it runs.
    async fn existing_fleet(&self) -> Result<Option<Fleet>> {
        if self.real {
            return Ok(None);
        }
        let connection = Connection {
            kubeconfig: self.kubeconfig.clone(),
            context: None,
        };
        let kubeconfig = match connection.read_if_any() {
            // KUBECONFIG may still name the file of a fleet that has ended.
            Err(error) if self.kubeconfig.is_none() => {
                println!("{error:#}");
                return Ok(None);
            }
            answer => answer?,
        };
        if !["hub", "cluster1"]
            .iter()
            .all(|name| has_context(&kubeconfig, name))
        {
            if let Some(file) = &self.kubeconfig {
                bail!(
                    "{} is not of a fleet: it has no contexts writ-hub and writ-cluster1\n`writ up` prints which file its fleet has; without --kubeconfig the tour starts a fleet of its own",
                    file.display()
                );
            }
            return Ok(None);
        }
        let answers = tokio::time::timeout(ALIVE, attach(&kubeconfig)).await;
        let silence = match answers {
            Ok(Ok(fleet)) => return Ok(Some(fleet)),
            Ok(Err(error)) => anyhow!("the fleet of the kubeconfig does not answer: {}", words(&error)),
            Err(_) => anyhow!(
                "the fleet of the kubeconfig does not answer within {} seconds",
                ALIVE.as_secs()
            ),
        };
        if self.kubeconfig.is_some() {
            return Err(silence);
        }
        println!("{silence}; the tour starts its own.");
        Ok(None)
    }

    async fn walk_on_own_fleet(&self, stop: &CancellationToken) -> Result<End> {
        println!("Starting a hub and a managed cluster.");
        let bar = terminal::spinner("starting");
        let kind = if self.real { Kind::Real } else { Kind::Embedded };
        let fleet = Fleet::start_with(Options {
            kind,
            clusters: 1,
            port_base: None,
            data: None,
            recorder: None,
        })
        .await?;
        let scratch = private::temporary("writ-tour-")?;
        let running = fleet.run_everything(scratch.path()).await?;
        bar.finish_and_clear();
        let end = tour::walk(&fleet, self.yes, self.timeout, stop).await;
        running.stop().await?;
        end
    }
}

/// Connects to the fleet of a kubeconfig, and asks the hub and the first cluster for their versions.
async fn attach(kubeconfig: &Kubeconfig) -> Result<Fleet> {
    let fleet = Fleet::attach(kubeconfig).await?;
    for cluster in [&fleet.hub, fleet.cluster(1)?] {
        cluster.admin().await?.apiserver_version().await?;
    }
    Ok(fleet)
}
