//! Connections to API servers, and explanations of what went wrong.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use kube::{
    Client, Config, Resource,
    config::{KubeConfigOptions, Kubeconfig},
    core::Status,
    runtime::{wait, watcher},
};
use writ_api::cluster::{ManagedCluster, Placement};

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
        writ_process::client::connect(config).with_context(|| format!("set up a client for {url}"))
    }

    /// The client's configuration.
    pub async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        if self.context.is_none() && !self.has_file() {
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
        if self.context.is_none() && kubeconfig.current_context.as_deref().is_none_or(str::is_empty) {
            let known: Vec<_> = kubeconfig.contexts.iter().map(|context| &*context.name).collect();
            if known.is_empty() {
                bail!(
                    "the kubeconfig has no context: it is empty\nname another file with --kubeconfig; `writ up` starts a fleet and prints the line to run"
                );
            }
            bail!(
                "the kubeconfig has no current context: choose one with --context; there are: {}",
                known.join(", ")
            );
        }
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("use the kubeconfig")
    }

    /// The namespace of the chosen context, if it has one.
    pub fn namespace(&self) -> Result<Option<String>> {
        let kubeconfig = self.with_context(self.read_if_any()?);
        let current = kubeconfig.current_context.as_ref();
        let context = kubeconfig
            .contexts
            .iter()
            .find(|named| Some(&named.name) == current);
        let namespace = context.and_then(|named| named.context.as_ref()?.namespace.clone());
        Ok(namespace.filter(|namespace| !namespace.is_empty()))
    }

    /// The kubeconfig with the chosen context as its current one.
    pub fn chosen(&self) -> Result<Kubeconfig> {
        Ok(self.with_context(self.read()?))
    }

    fn with_context(&self, mut config: Kubeconfig) -> Kubeconfig {
        if self.context.is_some() {
            config.current_context.clone_from(&self.context);
        }
        config
    }

    /// The kubeconfig itself.
    pub fn read(&self) -> Result<Kubeconfig> {
        if let Some(file) = &self.kubeconfig {
            return Kubeconfig::read_from(file).map_err(|error| {
                anyhow!(
                    "cannot read the kubeconfig {}: {}\nname another file with --kubeconfig; `writ up` starts a fleet and prints the line to run",
                    file.display(),
                    unquoted(&error)
                )
            });
        }
        Kubeconfig::read().map_err(|error| match named_by_environment() {
            Some(named) => anyhow!(
                "KUBECONFIG names {named}, which cannot be read: {}\nis the fleet of `writ up` gone? it prints the line to run",
                unquoted(&error)
            ),
            None => anyhow!("cannot read the kubeconfig in ~/.kube: {}", unquoted(&error)),
        })
    }

    /// The same, or an empty one if no file exists. A file that cannot be read is still an error.
    pub fn read_if_any(&self) -> Result<Kubeconfig> {
        if self.has_file() {
            self.read()
        } else {
            Ok(Kubeconfig::default())
        }
    }

    /// Whether a kubeconfig is named, or exists at the default path.
    fn has_file(&self) -> bool {
        self.kubeconfig.is_some()
            || named_by_environment().is_some()
            || std::env::home_dir().is_some_and(|home| home.join(".kube/config").exists())
    }
}

/// The value of `KUBECONFIG`, unless it is empty.
fn named_by_environment() -> Option<String> {
    let named = std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty())?;
    Some(named.to_string_lossy().into_owned())
}

/// Replaces file names in a kubeconfig by the contents: it may be read on a machine without these files.
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

/// Keeps only the current context, its cluster and its user: credentials of other contexts must not leave the machine.
pub fn minimal(mut config: Kubeconfig) -> Kubeconfig {
    let current = config.current_context.clone().unwrap_or_default();
    config.contexts.retain(|named| named.name == current);
    let context = config.contexts.first().and_then(|named| named.context.as_ref());
    let (cluster, user) = context.map_or_else(Default::default, |context| {
        (context.cluster.clone(), context.user.clone().unwrap_or_default())
    });
    config.clusters.retain(|named| named.name == cluster);
    config.auth_infos.retain(|named| named.name == user);
    config
}

/// Explains a failed request: what was tried, what the server said, what to do.
pub fn explain(what: &str, error: &kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => anyhow!(
            "{what}: the server does not know these credentials ({})\nthey may have expired; look at `kubectl config view --minify`",
            status.message
        ),
        kube::Error::Api(status) if status.code == 403 => anyhow!(
            "{what}: refused: {}\nask for a role that allows it; if you may read roles, `writ who-can VERB RESOURCE` lists who has one",
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
        kube::Error::Api(status) if status.code == 404 && is_about(status, &ManagedCluster::plural(&())) => {
            anyhow!(
                "{what}: {}\n`writ get clusters` lists those that this hub has",
                status.message
            )
        }
        kube::Error::Api(status) if status.code == 404 && is_about(status, &Placement::plural(&())) => {
            anyhow!(
                "{what}: {}\n`writ get placements -A` lists those that this hub has",
                status.message
            )
        }
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        // Without the message of the parser: it quotes the answer, which may hold a token.
        kube::Error::SerdeError(_) => anyhow!(
            "{what}: the answer cannot be understood\nis it an API server of Kubernetes, and does it serve this version of the kind?"
        ),
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
            explain_no_answer(what, error)
        }
        other => anyhow!("{what}: {}", root_cause(other)),
    }
}

fn is_about(status: &Status, plural: &str) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| details.kind == plural)
}

/// Explains why a request got no answer.
fn explain_no_answer(what: &str, error: &kube::Error) -> anyhow::Error {
    let cause = root_cause(error);
    let mut cause_of: Option<&dyn std::error::Error> = Some(error);
    let mut by_credentials = false;
    while let Some(cause) = cause_of {
        by_credentials |= cause.is::<kube::client::AuthError>();
        cause_of = cause.source();
    }
    if by_credentials {
        anyhow!(
            "{what}: the credentials of the kubeconfig cannot be obtained: {cause}\nrun the command of its `exec` by hand"
        )
    } else if cause.contains("certificate") {
        anyhow!(
            "{what}: the API server is not who the kubeconfig says: {cause}\ndoes the kubeconfig hold the CA of this server?"
        )
    } else if cause.contains("HTTP version") {
        anyhow!(
            "{what}: the server does not speak HTTP: {cause}\nis it an https server, while the kubeconfig says http?"
        )
    } else {
        anyhow!(
            "{what}: the API server cannot be reached: {cause}\nis it running, and does the kubeconfig name the right address?"
        )
    }
}

/// The message for any error of a command; a failed request is explained as [`explain`] does.
pub fn words(error: &anyhow::Error) -> String {
    let mut tried = Vec::new();
    for cause in error.chain() {
        if let Some(failed) = cause.downcast_ref::<kube::Error>() {
            return explain_after(&tried, failed);
        }
        match cause.downcast_ref::<writ_controller::Error>() {
            Some(writ_controller::Error::Api { what, source }) => {
                tried.push(what.clone());
                return explain_after(&tried, source);
            }
            // Its message contains its source.
            Some(other) => {
                tried.push(other.to_string());
                break;
            }
            // These only repeat their source.
            None if cause.is::<wait::Error>() || cause.is::<watcher::Error>() => {}
            None => tried.push(cause.to_string()),
        }
    }
    tried.join(": ")
}

fn explain_after(tried: &[String], error: &kube::Error) -> String {
    let what = if tried.is_empty() {
        "ask the API server".into()
    } else {
        tried.join(": ")
    };
    explain(&what, error).to_string()
}

/// Why a kubeconfig cannot be read, without the quoted lines around the fault: they may hold a token.
pub fn unquoted(error: &dyn std::error::Error) -> String {
    let cause = root_cause(error);
    cause.lines().next().unwrap_or_default().to_owned()
}

/// The innermost cause; the outer ones only repeat it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
