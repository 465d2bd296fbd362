//! Which clusters a command is about, and how they are reached.

use std::time::Duration;

use anyhow::{Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use writ_api::{authentication::ManagedServiceAccount, cluster::ManagedCluster};

use crate::connect::{Connection, explain};

/// A hint is not worth a longer wait.
const HINT: Duration = Duration::from_secs(2);

/// The clusters a question is about.
#[derive(Clone, Debug, Args)]
pub struct Choice {
    /// One managed cluster; without it, the cluster of the current context.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub cluster: Option<String>,
    /// Every managed cluster of the hub.
    #[arg(long)]
    pub all: bool,
    /// Reach managed clusters with the token of this ManagedServiceAccount, where the kubeconfig has no context.
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
}

/// The chosen clusters, by name, with a client for each.
pub async fn choose(connection: &Connection, choice: &Choice) -> Result<Vec<(String, Client)>> {
    if choice.all {
        let hub = connection.client().await?;
        let clusters = Api::<ManagedCluster>::all(hub)
            .list(&ListParams::default())
            .await
            .map_err(|e| explain("list the managed clusters", &e))?;
        let mut chosen = Vec::new();
        for cluster in clusters {
            let name = cluster.name_any();
            let client = reach(connection, &name, choice.account.as_deref()).await?;
            chosen.push((name, client));
        }
        return Ok(chosen);
    }
    match &choice.cluster {
        Some(name) => {
            let client = reach(connection, name, choice.account.as_deref()).await?;
            Ok(vec![(name.clone(), client)])
        }
        None => Ok(vec![("this cluster".into(), connection.client().await?)]),
    }
}

/// A client of a managed cluster: by a context `NAME` or `writ-NAME`, else by the token of an account.
async fn reach(connection: &Connection, cluster: &str, account: Option<&str>) -> Result<Client> {
    let kubeconfig = connection.read().unwrap_or_default();
    let context = kubeconfig
        .contexts
        .iter()
        .map(|context| &context.name)
        .find(|name| *name == cluster || **name == format!("writ-{cluster}"));
    if let Some(context) = context {
        return Connection {
            context: Some(context.clone()),
            ..connection.clone()
        }
        .client()
        .await;
    }
    match account {
        Some(account) => with_token(connection, cluster, account).await,
        None => bail!(
            "cluster {cluster} cannot be reached: the kubeconfig has no context {cluster:?} or \"writ-{cluster}\"; \
             add one, or name a ManagedServiceAccount of that cluster with --account{}",
            accounts(connection, cluster).await
        ),
    }
}

/// The accounts that could be named, for a hint; nothing if they cannot be read.
async fn accounts(connection: &Connection, cluster: &str) -> String {
    let Ok(hub) = connection.client().await else {
        return String::new();
    };
    let api: Api<ManagedServiceAccount> = Api::namespaced(hub, cluster);
    let listed = tokio::time::timeout(HINT, api.list(&ListParams::default())).await;
    let names: Vec<_> = match listed {
        Ok(Ok(accounts)) => accounts.iter().map(ResourceExt::name_any).collect(),
        _ => return String::new(),
    };
    if names.is_empty() {
        format!(" (there is none in the namespace {cluster} of the hub)")
    } else {
        format!(" (there are: {})", names.join(", "))
    }
}

/// A client with the token that the hub holds for a ManagedServiceAccount.
async fn with_token(connection: &Connection, cluster: &str, account: &str) -> Result<Client> {
    let hub = connection.client().await?;
    let found = Api::<ManagedCluster>::all(hub.clone())
        .get(cluster)
        .await
        .map_err(|e| explain(&format!("read ManagedCluster {cluster}"), &e))?;
    let Some((url, ca)) = found
        .spec
        .managed_cluster_client_configs
        .first()
        .map(|config| (config.url.clone(), config.ca_bundle.clone()))
    else {
        bail!(
            "ManagedCluster {cluster} names no URL in spec.managedClusterClientConfigs: nobody says where its API server is"
        );
    };
    let secret = Api::<Secret>::namespaced(hub, cluster)
        .get(account)
        .await
        .map_err(|e| {
            explain(
                &format!("read the token of ManagedServiceAccount {cluster}/{account}"),
                &e,
            )
        })?;
    let part = |key: &str| {
        let bytes = secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .map(|bytes| bytes.0.clone());
        bytes.and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let Some(token) = part("token") else {
        bail!(
            "Secret {cluster}/{account} holds no token yet; `writ describe account {account} -n {cluster}` says why"
        );
    };
    // The bundle on the ManagedCluster is for this address; the Secret's is what pods in the cluster see.
    let ca = ca.or_else(|| part("ca.crt").map(|pem| STANDARD.encode(pem)));
    let kubeconfig = kubeconfig(
        &url,
        ca.as_deref(),
        AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        },
    );
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A kubeconfig with one context; the CA is PEM in base64.
fn kubeconfig(url: &str, ca: Option<&str>, auth: AuthInfo) -> Kubeconfig {
    let document = serde_json::json!({
        "clusters": [{"name": "cluster", "cluster": {
            "server": url,
            "certificate-authority-data": ca,
        }}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "account"}}],
        "users": [{"name": "account", "user": {}}],
        "current-context": "cluster",
    });
    let mut kubeconfig: Kubeconfig = serde_json::from_value(document).unwrap_or_default();
    if let Some(user) = kubeconfig.auth_infos.first_mut() {
        user.auth_info = Some(auth);
    }
    kubeconfig
}
