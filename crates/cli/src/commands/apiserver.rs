//! `writ apiserver`

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use writ_process::supervise;

/// Run an embedded Kubernetes API server: it stores, admits and authorizes, it runs no pods.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ apiserver --kubeconfig-out /tmp/kubeconfig &\n  kubectl --kubeconfig /tmp/kubeconfig get namespaces"
)]
pub struct Apiserver {
    /// The port to listen on; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Keep everything in this folder; without it, everything is in memory and gone at the end.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write the administrator's kubeconfig to this file when the server is ready.
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
}

impl Apiserver {
    pub async fn run(self) -> Result<ExitCode> {
        let shutdown = supervise::shutdown_on_signal()?;
        let written = self.kubeconfig_out.clone();
        let options = writ_apiserver::Options {
            port: self.port,
            data: self.data,
            kubeconfig_out: self.kubeconfig_out,
        };
        writ_apiserver::serve(
            options,
            |url, kubeconfig| match written {
                Some(file) => println!("serving on {url}, kubeconfig in {}", file.display()),
                None => println!("# serving on {url}\n{kubeconfig}"),
            },
            shutdown.cancelled(),
        )
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
