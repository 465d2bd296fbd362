//! `writ detach`: a cluster leaves the hub.

use std::{pin::pin, process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use futures::StreamExt;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, watch_object},
    },
};
use serde_json::json;
use writ_api::cluster::ManagedCluster;
use writ_controller::condition;
use writ_hub::registration::{CONDITION_DELETING, operator_actions};

use crate::{
    connect::{Connection, explain},
    flags::duration,
    output::{self, Format},
};

/// Detach a cluster: its agent removes what the hub's works applied, then everything of it on the hub goes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ detach cluster1\n  writ detach cluster1 --force   # its agent is gone for good: what it applied stays there\n\nExit code: 0 once detached, 1 if something is left after --timeout, 2 on an error."
)]
pub struct Detach {
    /// The cluster.
    name: String,
    /// Do not wait for the agent: works go from the hub, and what they applied stays on the cluster.
    #[arg(long)]
    force: bool,
    /// How long to wait until the cluster is gone; 0s returns at once.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// How long to wait before printing what is left.
const QUIET: Duration = Duration::from_secs(3);

impl Detach {
    pub async fn run(self) -> Result<ExitCode> {
        let client = self.connection.client().await?;
        operator_actions::detach(&client, &self.name, self.force).await?;
        let api: Api<ManagedCluster> = Api::all(client);
        let waited = tokio::time::timeout(self.timeout, self.wait(&api)).await;
        let left = match waited {
            Ok(gone) => {
                gone?;
                None
            }
            Err(_) => self.read_progress(&api).await?,
        };
        let (name, gone) = (&self.name, left.is_none());
        let answer = json!({"cluster": name, "detached": gone, "left": left});
        output::value(self.output, &answer, || match (self.output, &left) {
            (Format::Name, _) => format!("managedclusters.cluster.open-cluster-management.io/{name}"),
            (_, None) => format!("{name} is detached"),
            (_, Some(left)) => format!("{name} is being detached: {left}"),
        })?;
        Ok(if gone || self.timeout.is_zero() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    /// Waits until the cluster is gone.
    async fn wait(&self, api: &Api<ManagedCluster>) -> Result<()> {
        let mut seen = pin!(watch_object(api.clone(), &self.name).default_backoff());
        let mut quiet = pin!(tokio::time::sleep(QUIET));
        let (mut printed, mut left) = (String::new(), None);
        loop {
            tokio::select! {
                next = seen.next() => match next {
                    Some(Ok(cluster)) => match self.progress(cluster)? {
                        Some(words) => left = Some(words),
                        None => return Ok(()),
                    },
                    // Other errors are retried by the watch.
                    Some(Err(error)) if is_refused(&error) => return Err(error.into()),
                    Some(Err(_)) => {}
                    None => bail!("the watch of ManagedCluster {} ended", self.name),
                },
                // Most clusters are gone in a moment; after that, print what the wait is for.
                () = &mut quiet, if !quiet.is_elapsed() => {}
            }
            if let Some(words) = left
                .as_ref()
                .filter(|words| quiet.is_elapsed() && **words != printed)
            {
                eprintln!("waiting: {words}");
                printed.clone_from(words);
            }
        }
    }

    /// What is left of the cluster now; `None` once it is gone.
    async fn read_progress(&self, api: &Api<ManagedCluster>) -> Result<Option<String>> {
        let cluster = api
            .get_opt(&self.name)
            .await
            .map_err(|e| explain(&format!("read ManagedCluster {}", self.name), &e))?;
        self.progress(cluster)
    }

    fn progress(&self, cluster: Option<ManagedCluster>) -> Result<Option<String>> {
        let Some(cluster) = cluster else {
            return Ok(None);
        };
        if cluster.metadata.deletion_timestamp.is_none() {
            bail!("ManagedCluster {} was created again in the meantime", self.name);
        }
        let conditions = cluster.status.map(|s| s.conditions).unwrap_or_default();
        let message = condition::find(&conditions, CONDITION_DELETING).map(|c| c.message.clone());
        Ok(Some(
            message.unwrap_or_else(|| "the hub has not answered yet".into()),
        ))
    }
}

/// Whether the server refuses the watch, so that retrying cannot help.
fn is_refused(error: &watcher::Error) -> bool {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    chain
        .filter_map(|cause| cause.downcast_ref::<kube::Error>())
        .any(|cause| matches!(writ_controller::error::status_code(cause), Some(401 | 403)))
}
