//! `writ kubeconfig`: reach a managed cluster as a ManagedServiceAccount, without a token in a file.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use writ_tokens::{Access, Program};

use super::token::explain_token_error;
use crate::{
    connect::Connection,
    output::{self, Format},
};

/// Print a kubeconfig for a managed cluster that asks the hub for a token whenever it needs one.
///
/// The kubeconfig holds no token: it runs `writ token get`, which reads it from the hub with the credentials that you
/// use now, and with the account's right on the managed cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ kubeconfig cluster1 --service-account robot > robot.kubeconfig\n  kubectl --kubeconfig robot.kubeconfig get pods"
)]
pub struct Kubeconfig {
    /// The managed cluster.
    cluster: String,
    /// The ManagedServiceAccount in its namespace.
    #[arg(long, value_name = "NAME")]
    service_account: String,
    /// The address of the cluster's API server; default: the first client config of its ManagedCluster.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The program that the kubeconfig runs; default: this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

impl Kubeconfig {
    pub async fn run(self) -> Result<ExitCode> {
        let hub = self.connection.client().await?;
        // Fails now rather than in the first use of the kubeconfig.
        let token = writ_tokens::get(&hub, &self.cluster, &self.service_account)
            .await
            .map_err(explain_token_error)?;
        let mut access = match self.server.clone() {
            Some(url) => Access { url, ca: None },
            None => match writ_tokens::server_of(&hub, &self.cluster).await {
                Err(error @ writ_tokens::Error::NoAddress(_)) => {
                    bail!("{error}; name the address with --server")
                }
                answer => answer.map_err(explain_token_error)?,
            },
        };
        // The CA of the cluster, unless the address has a CA of its own.
        if access.ca.is_none() && !token.ca.is_empty() {
            access.ca = Some(token.ca.clone());
        }
        let config =
            writ_tokens::exec_kubeconfig(&self.cluster, &self.service_account, &access, &self.program()?);
        output::kubeconfig(self.output, &config)?;
        Ok(ExitCode::SUCCESS)
    }

    /// How the kubeconfig asks for a token: the hub as it is reached now, whatever the user's kubeconfig says later.
    fn program(&self) -> Result<Program> {
        let command = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("find this program")?,
        };
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.into());
        let (mut options, mut environment) = (Vec::new(), Vec::new());
        let files: Vec<PathBuf> = match (&self.connection.kubeconfig, std::env::var_os("KUBECONFIG")) {
            (Some(file), _) => vec![file.clone()],
            (None, Some(files)) => std::env::split_paths(&files).collect(),
            (None, None) => std::env::home_dir()
                .map(|home| home.join(".kube/config"))
                .filter(|file| file.exists())
                .into_iter()
                .collect(),
        };
        if !files.is_empty() {
            let files = std::env::join_paths(files.iter().map(|file| absolute(file)))
                .context("name the hub's kubeconfig")?;
            environment.push(("KUBECONFIG".to_owned(), files.to_string_lossy().into_owned()));
            let current = self
                .connection
                .read()
                .ok()
                .and_then(|config| config.current_context);
            let context = self.connection.context.clone().or(current);
            options.extend(context.map(|context| format!("--context={context}")));
        }
        Ok(Program {
            command: command.display().to_string(),
            options,
            environment,
        })
    }
}
