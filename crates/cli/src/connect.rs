//! Which API server, as whom; and what went wrong, in words.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// The flags of every command that talks to an API server.
#[derive(Clone, Debug, Default, Args)]
pub struct Connection {
    /// The kubeconfig file; default: `KUBECONFIG`, then ~/.kube/config, then the pod's own account.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use; default: the current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
}

impl Connection {
    /// A client of the chosen API server.
    pub async fn client(&self) -> Result<Client> {
        let config = self.config().await?;
        let url = config.cluster_url.to_string();
        Client::try_from(config).with_context(|| format!("set up a client for {url}"))
    }

    /// The client's configuration.
    pub async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        if self.kubeconfig.is_none() && self.context.is_none() {
            // A file that is named and cannot be read is not the same as no file.
            if let Some(named) = std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty()) {
                let kubeconfig = Kubeconfig::read().map_err(|error| {
                    let named = named.to_string_lossy();
                    anyhow!(
                        "KUBECONFIG names {named}, which cannot be read: {}\nis the fleet of `writ up` gone? it prints the line to run",
                        root_cause(&error)
                    )
                })?;
                return Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .context("use the kubeconfig");
            }
            return Config::infer().await.map_err(|error| {
                anyhow!("there is no kubeconfig and this is no pod: {error}\nset KUBECONFIG or --kubeconfig; `writ up` starts a fleet and prints the line to run")
            });
        }
        let kubeconfig = self.read()?;
        if let Some(wanted) = &self.context
            && !kubeconfig.contexts.iter().any(|context| context.name == *wanted)
        {
            let known: Vec<_> = kubeconfig
                .contexts
                .iter()
                .map(|context| context.name.as_str())
                .collect();
            bail!(
                "there is no context {wanted:?} in the kubeconfig; there are: {}",
                known.join(", ")
            );
        }
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("use the kubeconfig")
    }

    /// The address of the API server, to the letter as the kubeconfig spells it.
    pub fn server(&self) -> Result<String> {
        let kubeconfig = self.read()?;
        let wanted = self.context.as_ref().or(kubeconfig.current_context.as_ref());
        let context = kubeconfig
            .contexts
            .iter()
            .find(|named| Some(&named.name) == wanted);
        let cluster = context
            .and_then(|named| named.context.as_ref())
            .map(|context| &context.cluster);
        kubeconfig
            .clusters
            .iter()
            .find(|named| Some(&named.name) == cluster)
            .and_then(|named| named.cluster.as_ref()?.server.clone())
            .context("the current context of the kubeconfig names no server")
    }

    /// The kubeconfig with the chosen context as its current one.
    pub fn chosen(&self) -> Result<Kubeconfig> {
        let mut config = self.read()?;
        if self.context.is_some() {
            config.current_context.clone_from(&self.context);
        }
        Ok(config)
    }

    /// The kubeconfig itself.
    pub fn read(&self) -> Result<Kubeconfig> {
        match &self.kubeconfig {
            Some(file) => Kubeconfig::read_from(file).map_err(|error| {
                anyhow!(
                    "cannot read the kubeconfig {}: {}",
                    file.display(),
                    root_cause(&error)
                )
            }),
            None => Kubeconfig::read().context("read the kubeconfig"),
        }
    }
}

/// Puts what a kubeconfig names as files into it: it may be read where the files are not.
pub fn self_contained(mut config: Kubeconfig) -> Result<Kubeconfig> {
    let read = |what: &str, file: &str| {
        std::fs::read(file).with_context(|| format!("read the {what} of the hub in {file}"))
    };
    for cluster in config.clusters.iter_mut().filter_map(|c| c.cluster.as_mut()) {
        if let Some(file) = cluster.certificate_authority.take() {
            cluster.certificate_authority_data = Some(STANDARD.encode(read("CA", &file)?));
        }
    }
    for user in config.auth_infos.iter_mut().filter_map(|u| u.auth_info.as_mut()) {
        if let Some(file) = user.client_certificate.take() {
            user.client_certificate_data = Some(STANDARD.encode(read("client certificate", &file)?));
        }
        if let Some(file) = user.client_key.take() {
            user.client_key_data = Some(STANDARD.encode(read("client key", &file)?).into());
        }
        if let Some(file) = user.token_file.take() {
            let token = String::from_utf8(read("token", &file)?).context("the token is no text")?;
            user.token = Some(token.trim().to_owned().into());
        }
    }
    Ok(config)
}

/// Explains a failed request: what was tried, what the server said, what to do.
pub fn explain(what: &str, error: &kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "{what}: the server does not know these credentials ({})\nthey may have expired; look at `kubectl config view --minify`",
            status.message
        ),
        kube::Error::Api(status) if status.code == 403 => anyhow!(
            "{what}: refused: {}\nask somebody who may for a role, or see `writ who-can`",
            status.message
        ),
        kube::Error::Api(status)
            if status.code == 404
                && status
                    .details
                    .as_ref()
                    .is_none_or(|details| details.name.is_empty()) =>
        {
            anyhow!(
                "{what}: the server does not serve this kind; is it a hub? `writ crds | kubectl apply --server-side -f -` installs the definitions"
            )
        }
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        other => anyhow!(
            "{what}: the API server cannot be reached: {}\nis it running, and does the kubeconfig name the right address?",
            root_cause(other)
        ),
    }
}

/// The innermost cause: the rest repeats it in more words.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
