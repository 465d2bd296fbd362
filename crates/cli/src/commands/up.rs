//! `writ up`: the whole fleet on one machine.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use kube::config::Kubeconfig;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use writ_fleet::{Cluster, Everything, Fleet, Kind, fleet::Options, git::Repository};
use writ_process::private;
use writ_process::supervise;

use crate::{daemon, example, terminal};

/// Run a hub and managed clusters on this machine, with everything of writ running on them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ up --clusters 3 --data ./fleet")]
pub struct Up {
    /// How many managed clusters; default: as many as the folder of --data has, else 2.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=i64::from(MOST_CLUSTERS)))]
    clusters: Option<u16>,
    /// Keep the state in this folder, and continue from it.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Use real control planes (etcd, kube-apiserver) instead of embedded ones.
    #[arg(long)]
    real: bool,
    /// The port of the hub; the clusters take the next ones. Default: free ports.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
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

/// A running fleet and what must live as long as it.
struct Started {
    greeting: String,
    fleet: Fleet,
    running: Everything,
    _repository: Option<Repository>,
    _scratch: TempDir,
}

/// How many managed clusters there are without --clusters.
const DEFAULT_CLUSTERS: usize = 2;
/// The most clusters of a fleet: each has a port and an agent.
const MOST_CLUSTERS: u16 = 1000;
/// How many clusters are listed one by one.
const SHOWN: usize = 10;

impl Up {
    pub async fn run(self) -> Result<ExitCode> {
        let shutdown = supervise::shutdown_on_signal()?;
        let clusters = self.clusters()?;
        self.check_ports(clusters)?;
        // The start can be interrupted too: everything started so far ends with this process.
        tokio::select! {
            () = shutdown.cancelled() => {
                eprintln!("stopped before everything ran");
                Ok(ExitCode::SUCCESS)
            }
            started = self.start(clusters) => self.follow(started?, &shutdown).await,
        }
    }

    /// How many managed clusters to start: at least those that the folder keeps, which the hub still lists.
    fn clusters(&self) -> Result<usize> {
        let kept = self.data.as_deref().map_or(0, kept_clusters);
        match self.clusters.map(usize::from) {
            Some(wanted) if wanted < kept => bail!(
                "the folder keeps {kept} clusters: leave --clusters out, or take {kept} or more; another folder for a smaller fleet"
            ),
            Some(wanted) => Ok(wanted),
            None if kept > 0 => Ok(kept),
            None => Ok(DEFAULT_CLUSTERS),
        }
    }

    /// Refuses ports beyond 65535 before anything starts.
    fn check_ports(&self, clusters: usize) -> Result<()> {
        let last = self.port_base.map(|base| usize::from(base) + clusters);
        if let Some(last) = last.filter(|last| *last > usize::from(u16::MAX)) {
            bail!(
                "--port-base {} with {clusters} clusters needs ports up to {last}, and they end at {}: take a lower one",
                self.port_base.unwrap_or_default(),
                u16::MAX
            );
        }
        Ok(())
    }

    /// Starts everything, and prints the greeting.
    async fn start(&self, clusters: usize) -> Result<Started> {
        let started = Instant::now();
        let kind = if self.real { Kind::Real } else { Kind::Embedded };
        let bar = terminal::spinner(format!("starting a hub and {clusters} clusters"));
        let fleet = Fleet::start_with(Options {
            kind,
            clusters,
            port_base: self.port_base,
            data: self.data.clone(),
            recorder: None,
        })
        .await?;
        let scratch = private::temporary("writ-up-")?;
        // Absolute: it is used in another terminal.
        let file = std::path::absolute(self.data.as_deref().unwrap_or(scratch.path()))?.join("kubeconfig");
        write_kubeconfig(&fleet, &file)?;

        let running = fleet.run_everything(&scratch.path().join("clones")).await?;
        let repository = match self.example {
            Example::Tour => example::apply(&fleet, self.data.as_deref()).await?,
            Example::None => None,
        };
        bar.finish_and_clear();
        let greeting = self.greeting(&fleet, started, &file);
        print!("{greeting}");
        Ok(Started {
            greeting,
            fleet,
            running,
            _repository: repository,
            _scratch: scratch,
        })
    }

    /// Shows the fleet until it is stopped.
    async fn follow(&self, mut started: Started, shutdown: &CancellationToken) -> Result<ExitCode> {
        tokio::select! {
            () = shutdown.cancelled() => {}
            shown = terminal::live_table::show(&started.fleet, &started.greeting) => shown?,
            ended = started.running.ended() => return Err(ended),
        }
        eprintln!("stopping");
        // A second Ctrl-C skips the tidy end; temporary folders are removed anyway, as their owners are dropped here.
        tokio::select! {
            stopped = started.running.stop() => stopped.map(|()| ExitCode::SUCCESS),
            () = daemon::second_interrupt(shutdown) => Ok(ExitCode::from(daemon::INTERRUPTED)),
        }
    }

    /// The addresses of the clusters, and commands to try.
    fn greeting(&self, fleet: &Fleet, started: Instant, file: &Path) -> String {
        let mut text = String::new();
        let mut say = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        say(format!("ready after {} ms", started.elapsed().as_millis()));
        for cluster in std::iter::once(&fleet.hub).chain(&fleet.clusters).take(SHOWN) {
            say(format!("  {:<10} {}", cluster.name(), cluster.url()));
        }
        if fleet.clusters.len() >= SHOWN {
            say(format!("  ... and {} more", fleet.clusters.len() + 1 - SHOWN));
        }
        say(format!(
            "\nexport KUBECONFIG={}\n",
            quoted(&file.display().to_string())
        ));
        say("Try next, in another terminal:".into());
        let writ = program();
        say(format!("  {writ} get clusters"));
        match (self.example, fleet.clusters.is_empty()) {
            (_, true) => {
                say(format!("  {writ} token bootstrap > bootstrap.kubeconfig"));
                say(format!(
                    "  {writ} who-can create managedclusters.cluster.open-cluster-management.io\n"
                ));
            }
            (Example::Tour, false) => {
                say(format!(
                    "  {writ} why list pods --as user:alice -n web --cluster cluster1"
                ));
                say(format!("  {writ} tour\n"));
            }
            (Example::None, false) => {
                say(format!(
                    "  {writ} why list pods --as user:alice --cluster cluster1"
                ));
                say(format!("  {writ} tour\n"));
            }
        }
        say("Ctrl-C stops the fleet.\n".into());
        text
    }
}

/// How many managed clusters a folder has from earlier.
fn kept_clusters(folder: &Path) -> usize {
    (1..=MOST_CLUSTERS)
        .take_while(|number| folder.join(format!("cluster{number}")).exists())
        .count()
}

/// A path as a shell reads it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// How to call this program: by its name if it is on the PATH, else by its path.
fn program() -> String {
    let Ok(me) = std::env::current_exe() else {
        return "writ".into();
    };
    let found = std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|folder| folder.join("writ"))
        .find(|file| file.is_file());
    match found.and_then(|file| file.canonicalize().ok()) {
        Some(file) if Some(&file) == me.canonicalize().ok().as_ref() => "writ".into(),
        _ => me.display().to_string(),
    }
}

/// One file with a context for each cluster: `writ-hub`, `writ-cluster1`, ... The user's own kubeconfig is never touched.
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
    Ok(private::file(file, &text)?)
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
