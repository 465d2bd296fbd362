//! `writ sync`

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};

use writ_sync::Clients;

use crate::{
    connect::Connection,
    daemon::{self, DaemonFlags},
    flags::WebhookFlags,
};

/// Run RootSyncs and RepoSyncs: their bindings, and their reconcilers.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ sync --kubeconfig cluster1.kubeconfig --default-role none")]
pub struct Sync {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    webhook: WebhookFlags,
    /// Require of a user who edits a sync the rights to `bind` each of its roles and to `get` each of its Secrets.
    #[arg(long)]
    require_bind: bool,
    /// The role of a RootSync that names none.
    #[arg(long, value_enum, default_value_t = DefaultRole::ClusterAdmin)]
    default_role: DefaultRole,
    /// Where reconcilers run.
    #[arg(long, value_enum, default_value_t = Isolation::Task)]
    isolation: Isolation,
    /// The image of the Deployments of `--isolation=pod`.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Where clones are kept; default: a temporary folder.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Let RepoSyncs read repositories on this machine: a tenant could then read all that this process can.
    #[arg(long)]
    tenants_read_local: bool,
    /// Act alone, without asking whether another replica acts already.
    #[arg(long)]
    no_leader_election: bool,
    /// Run the reconciler of this one sync only: what the Deployments of `--isolation=pod` do.
    #[arg(long, value_name = "SYNC", hide = true)]
    reconcile: Option<String>,
    #[command(flatten)]
    process: DaemonFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DefaultRole {
    /// The ClusterRole cluster-admin, as Config Sync does.
    ClusterAdmin,
    /// No role.
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Isolation {
    /// As tasks of this process.
    Task,
    /// Each in a Deployment of its own.
    Pod,
}

impl Sync {
    pub async fn run(self) -> Result<ExitCode> {
        let config = self.connection.config().await?;
        let defaults = writ_sync::Options::default();
        let options = writ_sync::Options {
            default_role: match self.default_role {
                DefaultRole::ClusterAdmin => writ_sync::DefaultRole::ClusterAdmin,
                DefaultRole::None => writ_sync::DefaultRole::None,
            },
            isolation: match self.isolation {
                Isolation::Task => writ_sync::Isolation::Task,
                Isolation::Pod => writ_sync::Isolation::Pod,
            },
            require_bind: self.require_bind,
            // The address of this machine is needed only if it serves webhooks.
            webhook_url: if self.require_bind {
                self.webhook.address(&config)?
            } else {
                None
            },
            webhook_listen: self.webhook.listen,
            webhook_certs: self.webhook.certs,
            cache: self.cache.unwrap_or(defaults.cache),
            image: self.image.unwrap_or(defaults.image),
            tenants_read_local: self.tenants_read_local,
            leader_election: (!self.no_leader_election).then(daemon::identity),
        };
        let (health, shutdown) = daemon::start(&self.process).await?;
        match self.reconcile {
            Some(sync) => {
                let id = sync
                    .parse()
                    .map_err(|error| anyhow!("--reconcile {sync}: {error}"))?;
                writ_sync::reconciler::run_one(config, options, id, health, shutdown).await?;
            }
            None => writ_sync::run(Clients::of(config)?.counted(&health), options, health, shutdown).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
