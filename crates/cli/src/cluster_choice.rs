//! Which clusters a command is about, and how to reach them.

use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use writ_api::{addon::ManagedClusterAddOn, authentication::ManagedServiceAccount, cluster::ManagedCluster};
use writ_controller::tolerant;
use writ_fleet::fleet::context_name;
use writ_hub::managed_service_account::ADDON;

use crate::{
    connect::{Connection, explain, words},
    output::clean,
};

/// The name shown for the cluster of the current context.
pub const HERE: &str = "this cluster";
/// The name of the hub in a fleet of `writ up`.
const HUB: &str = "hub";
/// How many clusters are queried at a time.
const AT_ONCE: usize = 16;
/// How long to look for a hint in an error message.
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

impl Choice {
    /// Whether it names managed clusters, rather than the cluster of the current context.
    pub fn is_named(&self) -> bool {
        self.all || self.cluster.is_some()
    }
}

/// The chosen clusters by name, each with a client or the reason why there is none.
pub type Chosen = Vec<(String, Result<Client>)>;

/// Finds the chosen clusters, at least one. An unreachable cluster does not fail the others.
pub async fn choose(connection: &Connection, choice: &Choice) -> Result<Chosen> {
    let account = choice.account.as_deref();
    if choice.all {
        let hub = connection.client().await?;
        let clusters: Vec<ManagedCluster> = tolerant::list(&Api::all(hub), &ListParams::default())
            .await
            .map_err(|e| explain("list the managed clusters", &e))?;
        if clusters.is_empty() {
            bail!("this hub has no managed clusters; is it the hub that you mean?");
        }
        // The bootstrap credential can create ManagedClusters: until one is accepted, its address is not trusted.
        let (accepted, waiting): (Vec<_>, Vec<_>) = clusters
            .into_iter()
            .partition(|cluster| cluster.spec.hub_accepts_client);
        if !waiting.is_empty() {
            let names: Vec<_> = waiting.iter().map(ResourceExt::name_any).collect();
            eprintln!(
                "not asked, because they are not accepted yet: {}",
                clean(&names.join(", "))
            );
        }
        let reached = stream::iter(accepted).map(|cluster| async move {
            let name = cluster.name_any();
            let client = connect_to(connection, &name, account).await;
            (name, client)
        });
        return Ok(reached.buffered(AT_ONCE).collect().await);
    }
    Ok(match &choice.cluster {
        Some(name) => vec![(name.clone(), connect_to(connection, name, account).await)],
        None => vec![(HERE.into(), connection.client().await)],
    })
}

/// Asks every chosen cluster. Returns the answers, and the error to end with if some clusters did not answer: a missing
/// answer is neither a "no" nor a reason to hide the others. Fails at once if none answered.
pub async fn ask<T, F, Fut>(chosen: Chosen, question: F) -> Result<(Vec<(String, T)>, Option<Error>)>
where
    F: Fn(String, Client) -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let question = &question;
    let answers = stream::iter(chosen).map(|(cluster, client)| async move {
        let answer = async { question(cluster.clone(), client?).await }.await;
        match answer {
            // The cluster of the current context needs no name in the message.
            Err(error) if cluster != HERE => Err(error.context(cluster)),
            answer => Ok((cluster, answer?)),
        }
    });
    let answers: Vec<Result<(String, T)>> = answers.buffered(AT_ONCE).collect().await;
    let (mut known, mut failures) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(answer) => known.push(answer),
            Err(error) => failures.push(error),
        }
    }
    if known.is_empty() && failures.len() == 1 {
        return Err(failures.remove(0));
    }
    let told: Vec<String> = failures.iter().map(words).collect();
    let missing = (!told.is_empty()).then(|| anyhow!("not every cluster answered:\n{}", told.join("\n")));
    match missing {
        Some(missing) if known.is_empty() => Err(missing),
        missing => Ok((known, missing)),
    }
}

/// The namespace on a managed cluster where its ManagedServiceAccounts have their ServiceAccounts.
pub async fn account_namespace(hub: &Client, cluster: &str) -> Result<String> {
    let what = format!("find out where {cluster} keeps its accounts");
    let found = Api::<ManagedClusterAddOn>::namespaced(hub.clone(), cluster)
        .get(ADDON)
        .await
        .map_err(|e| explain(&what, &e))?;
    let told = found.status.and_then(|status| status.namespace);
    [told, Some(found.spec.install_namespace)]
        .into_iter()
        .flatten()
        .find(|namespace| !namespace.is_empty())
        .with_context(|| {
            format!(
                "{what}: ManagedClusterAddOn {cluster}/{ADDON} names no namespace yet; `writ describe addon {ADDON} -n {cluster}` says why"
            )
        })
}

/// A client of a managed cluster: by a context `NAME` or `writ-NAME`, else by the token of an account.
async fn connect_to(connection: &Connection, cluster: &str, account: Option<&str>) -> Result<Client> {
    let kubeconfig = connection.read_if_any()?;
    if let Some(context) = context_of(&kubeconfig, cluster) {
        return Connection {
            context: Some(context.to_owned()),
            ..connection.clone()
        }
        .client()
        .await;
    }
    match account {
        None if cluster == HUB => bail!(
            "hub is not a managed cluster of this fleet but the hub itself: leave --cluster out{}",
            if kubeconfig.current_context.as_deref() == Some(&context_name(HUB)) {
                String::new()
            } else {
                format!(", and say --context {}", context_name(HUB))
            }
        ),
        Some(account) => with_token(connection, cluster, account).await,
        None => bail!(
            "cluster {cluster} cannot be reached: the kubeconfig has no context {cluster:?} or \"writ-{cluster}\"; \
             add one, or name a ManagedServiceAccount of that cluster with --account{}",
            account_hint(connection, cluster).await
        ),
    }
}

/// The context of a managed cluster. The context `writ-hub` of a fleet is not one: it would answer for a cluster `hub`
/// that does not exist.
fn context_of<'a>(kubeconfig: &'a Kubeconfig, cluster: &str) -> Option<&'a str> {
    let mut names = kubeconfig.contexts.iter().map(|context| context.name.as_str());
    let of_fleet = Some(context_name(cluster)).filter(|_| cluster != HUB);
    names.find(|name| *name == cluster || of_fleet.as_deref() == Some(name))
}

/// A hint that lists the accounts of a cluster; empty if they cannot be read.
async fn account_hint(connection: &Connection, cluster: &str) -> String {
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
            "ManagedCluster {cluster} names no URL in spec.managedClusterClientConfigs, so the address of its API server is unknown"
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
    // The CA bundle on the ManagedCluster is for this address; the one in the Secret is for pods of the cluster.
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
    Ok(writ_process::client::connect(config)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_of_a_fleets_hub_is_no_managed_cluster() {
        let of = |names: &[&str]| -> Kubeconfig {
            let contexts: Vec<_> = names
                .iter()
                .map(|name| serde_json::json!({ "name": name }))
                .collect();
            serde_json::from_value(serde_json::json!({ "contexts": contexts })).unwrap()
        };
        let fleet = of(&["writ-hub", "writ-cluster1"]);
        assert_eq!(context_of(&fleet, "cluster1"), Some("writ-cluster1"));
        assert_eq!(context_of(&fleet, "cluster2"), None);
        assert_eq!(context_of(&fleet, "hub"), None);
        // A person's own context may have any name.
        assert_eq!(context_of(&of(&["hub", "writ-hub"]), "hub"), Some("hub"));
    }
}
