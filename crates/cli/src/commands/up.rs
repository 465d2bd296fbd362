//! `writ up`: the whole fleet on one machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Args;
use kube::config::Kubeconfig;
use writ_fleet::{Cluster, Fleet, Kind, fleet::Options};
use writ_runtime::supervise;

use crate::live;

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
}

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

        let mut running = vec![fleet.run_hub(Fleet::hub_options()).await?];
        for number in 1..=self.clusters {
            fleet.accept(number).await?;
            running.push(fleet.run_agent(number, writ_agent::Options::default()).await?);
            let clones = scratch.path().join(format!("sync{number}"));
            let options = writ_sync::Options {
                cache: clones,
                ..writ_sync::Options::default()
            };
            running.push(fleet.run_sync(number, options).await?);
        }

        println!("ready after {} ms", started.elapsed().as_millis());
        for cluster in std::iter::once(&fleet.hub).chain(&fleet.clusters) {
            println!("  {:<10} {}", cluster.name(), cluster.url());
        }
        println!("\nexport KUBECONFIG={}\n", file.display());
        println!("Try next, in another terminal:");
        println!("  writ get clusters");
        println!("  writ why create secrets --as user:alice --cluster cluster1");
        println!("  kubectl --context writ-cluster1 get namespaces\n");
        println!("Ctrl-C stops the fleet.\n");

        tokio::select! {
            () = shutdown.cancelled() => {}
            shown = live::show(&fleet) => shown?,
        }
        for part in running.into_iter().rev() {
            part.stop().await?;
        }
        Ok(ExitCode::SUCCESS)
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
    let name = format!("writ-{}", cluster.name());
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
