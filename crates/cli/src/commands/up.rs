//! `writ up`: the whole fleet on one machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kube::config::Kubeconfig;
use writ_fleet::{Cluster, Fleet, Kind, fleet::Options};
use writ_runtime::supervise;

use crate::{example, live};

/// Run a hub and managed clusters on this machine, with everything of writ running on them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ up --clusters 3 --data ./fleet")]
pub struct Up {
    /// How many managed clusters.
    #[arg(long, default_value_t = 2)]
    clusters: usize,
    /// Keep the state in this folder, and continue from it.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Use real control planes (etcd, kube-apiserver) instead of embedded ones.
    #[arg(long)]
    real: bool,
    /// The port of the hub; the clusters take the next ones. Default: free ports.
    #[arg(long, value_name = "PORT")]
    port_base: Option<u16>,
    /// What is applied at the start.
    #[arg(long, value_enum, default_value_t = Example::Tour)]
    example: Example,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Example {
    /// Nothing.
    None,
    /// One object of each kind that people meet first.
    Tour,
}

/// How many clusters are listed one by one.
const SHOWN: usize = 10;

impl Up {
    pub async fn run(self) -> Result<ExitCode> {
        let started = Instant::now();
        let shutdown = supervise::shutdown_on_signal()?;
        let kind = if self.real { Kind::Real } else { Kind::Embedded };
        let fleet = Fleet::start_with(Options {
            kind,
            clusters: self.clusters,
            port_base: self.port_base,
            data: self.data.clone(),
            recorder: None,
        })
        .await?;
        let scratch = tempfile::Builder::new().prefix("writ-up-").tempdir()?;
        let file = self.data.as_deref().unwrap_or(scratch.path()).join("kubeconfig");
        write_kubeconfig(&fleet, &file)?;

        let running = fleet.run_everything(&scratch.path().join("clones")).await?;
        let repository = match self.example {
            Example::Tour => example::apply(&fleet).await?,
            Example::None => None,
        };
        self.greet(&fleet, started, &file);

        tokio::select! {
            () = shutdown.cancelled() => {}
            shown = live::show(&fleet) => shown?,
        }
        eprintln!("stopping");
        running.stop().await?;
        drop(repository);
        Ok(ExitCode::SUCCESS)
    }

    /// What runs, where, and what to try.
    fn greet(&self, fleet: &Fleet, started: Instant, file: &Path) {
        println!("ready after {} ms", started.elapsed().as_millis());
        for cluster in std::iter::once(&fleet.hub).chain(&fleet.clusters).take(SHOWN) {
            println!("  {:<10} {}", cluster.name(), cluster.url());
        }
        if fleet.clusters.len() >= SHOWN {
            println!("  ... and {} more", fleet.clusters.len() + 1 - SHOWN);
        }
        println!("\nexport KUBECONFIG={}\n", file.display());
        println!("Try next, in another terminal:");
        println!("  writ get clusters");
        match self.example {
            Example::Tour => println!("  writ why list pods --as user:alice -n web --cluster cluster1"),
            Example::None => println!("  writ why list pods --as user:alice --cluster cluster1"),
        }
        println!("  writ tour\n");
        println!("Ctrl-C stops the fleet.\n");
    }
}

/// One file with a context for each cluster: `writ-hub`, `writ-cluster1`, ... The user's own is never touched.
fn write_kubeconfig(fleet: &Fleet, file: &Path) -> Result<()> {
    let mut all = Kubeconfig {
        current_context: Some("writ-hub".into()),
        ..Kubeconfig::default()
    };
    for cluster in std::iter::once(&fleet.hub).chain(&fleet.clusters) {
        let named = renamed(cluster);
        all.clusters.extend(named.clusters);
        all.auth_infos.extend(named.auth_infos);
        all.contexts.extend(named.contexts);
    }
    let text = writ_runtime::yaml::to_string(&all)?;
    write_private(file, &text).with_context(|| format!("write {}", file.display()))
}

fn renamed(cluster: &Cluster) -> Kubeconfig {
    let name = writ_fleet::fleet::context_name(cluster.name());
    let mut config = cluster.kubeconfig().clone();
    for named in &mut config.clusters {
        named.name.clone_from(&name);
    }
    for named in &mut config.auth_infos {
        named.name.clone_from(&name);
    }
    for named in &mut config.contexts {
        named.name.clone_from(&name);
        if let Some(context) = &mut named.context {
            context.cluster.clone_from(&name);
            context.user = Some(name.clone());
        }
    }
    config
}

/// The file holds keys: only its owner may read it.
fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let mut open = fs::OpenOptions::new();
    open.write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?
        .write_all(text.as_bytes())
}
