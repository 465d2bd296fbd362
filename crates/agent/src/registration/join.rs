//! Joins a hub: from a bootstrap identity to the agent's own.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use writ_api::cluster::{
    ManagedCluster,
    managed_cluster::{CONDITION_HUB_ACCEPTED, ManagedClusterSpec},
};
use writ_controller::{Error, backoff::Backoff, condition, error::Context as _, watch};
use writ_process::token;

use super::{
    certificate,
    identity::{self, Lifetime},
    identity_check::is_refused,
    model::{Driver, Joining},
    store::{self, Kept, PendingRequest, Store, auth_of},
};

/// The account of an agent on a hub with the token driver.
const AGENT_ACCOUNT: &str = "managed-cluster-agent";
/// How long the hub may take to say whether the cluster is still there.
const HUB_ANSWERS: Duration = Duration::from_secs(5);
/// How often the hub may refuse a new identity before joining fails.
const REFUSALS: u32 = 6;
/// How long a token lives: the last fifth of it is longer than a day, so that no agent loses its identity while the hub is
/// away for a day. Denying or detaching the cluster ends it at once.
pub(super) const TOKEN_SECONDS: i64 = 6 * 24 * 3600;

/// Joins the hub and returns the kubeconfig with the agent's own identity. Waits until the cluster is accepted.
///
/// An interrupted attempt is continued: a request that was sent is not sent again, so that the operator who accepts the
/// cluster finds one request and not several.
pub async fn join(joining: &Joining) -> Result<Kubeconfig, Error> {
    let mut kept = joining.store.load().await?;
    let hub = client(&joining.bootstrap).await?;
    if let Some(config) = kept.kubeconfig.take().filter(|c| is_good(c, joining)) {
        let why = if is_detached(&hub, &joining.cluster).await {
            "the cluster is not on the hub any more"
        } else if is_refused(&client(&config).await?, &joining.cluster).await {
            "the hub does not know the present identity any more"
        } else {
            return Ok(config);
        };
        tracing::info!(cluster = %joining.cluster, "{why}: joining anew");
        kept.pending = None;
    }
    if joining.driver == Driver::Csr {
        prepare_request(joining, &mut kept).await?;
    }
    let ensured = ensure_cluster(&hub, joining).await;
    if joining.driver == Driver::Token {
        // A token that an operator handed over belongs to an existing cluster, and may be accepted only some moments later.
        let first = match ensured {
            Err(error) if !error.is_code(403) => Err(error),
            _ => first_token(&hub, &joining.cluster).await,
        };
        let first = first.map_err(|error| explain_unknown_identity(error, &joining.cluster))?;
        let config = save_token(joining, &mut kept, &first).await?;
        wait_accepted(&hub, &client(&config).await?, &joining.cluster).await?;
        return Ok(config);
    }
    ensured?;
    let certificate = obtain_certificate(&hub, joining, &mut kept).await?;
    let config = save_certificate(joining, &mut kept, &certificate).await?;
    wait_accepted(&hub, &client(&config).await?, &joining.cluster).await?;
    Ok(config)
}

/// Returns true if the hub says that there is no such cluster. No answer, or a refusal of the bootstrap identity, which may
/// have expired long ago, means nothing.
async fn is_detached(bootstrap: &Client, cluster: &str) -> bool {
    let clusters: Api<ManagedCluster> = Api::all(bootstrap.clone());
    let there = tokio::time::timeout(HUB_ANSWERS, clusters.get_metadata_opt(cluster)).await;
    matches!(there, Ok(Ok(None)))
}

/// The identity that an earlier [`join`] kept, if it is of this cluster and still valid.
pub async fn joined_before(store: &Store, cluster: &str) -> Result<Option<Kubeconfig>, Error> {
    let kept = store.load().await?;
    Ok(kept
        .kubeconfig
        .filter(|config| is_of(config, cluster) && is_alive(config, Timestamp::now())))
}

/// Adds the way out to the error about a bootstrap identity that the hub does not know any more.
fn explain_unknown_identity(error: Error, cluster: &str) -> Error {
    if error.is_code(401) {
        return Error::Invalid(format!(
            "the hub does not know this identity any more ({error}); `writ accept {cluster} --hub-kubeconfig-out FILE` on \
             the hub writes a new one: start the agent with that"
        ));
    }
    error
}

/// Waits for a token of the cluster's own account, which exists once the cluster is accepted.
async fn first_token(hub: &Client, cluster: &str) -> Result<String, Error> {
    let clusters: Api<ManagedCluster> = Api::all(hub.clone());
    let mut pauses = pauses();
    let mut logged = false;
    loop {
        match request_token(hub, cluster).await {
            Err(error) if error.is_code(403) || error.is_code(404) => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::info!(%cluster, %error, "no token yet: the cluster is not accepted, or this identity may \
                        not ask for tokens of {cluster}/{AGENT_ACCOUNT}");
                }
                watch::until(&clusters, cluster, is_accepted, &mut pauses).await;
            }
            answer => return answer,
        }
    }
}

/// A token of the cluster's own account.
pub(super) async fn request_token(hub: &Client, cluster: &str) -> Result<String, Error> {
    let token = token::request(hub, cluster, AGENT_ACCOUNT, Some(TOKEN_SECONDS)).await?;
    Ok(token.text)
}

/// Keeps a token as the identity of this agent.
pub(super) async fn save_token(joining: &Joining, kept: &mut Kept, token: &str) -> Result<Kubeconfig, Error> {
    let auth = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    let config = identity::kubeconfig(&joining.bootstrap, auth)?;
    kept.kubeconfig = Some(config.clone());
    joining.store.save(&joining.cluster, kept).await?;
    Ok(config)
}

/// Keeps a key and the name of its request, unless one is pending. This comes before anything is sent: a request whose key is
/// lost would wait on the hub forever, beside the one of the next attempt.
async fn prepare_request(joining: &Joining, kept: &mut Kept) -> Result<PendingRequest, Error> {
    if let Some(pending) = &kept.pending {
        return Ok(pending.clone());
    }
    let key = identity::new_key()?;
    let fingerprint = identity::fingerprint(&key)?;
    let pending = PendingRequest {
        name: format!(
            "{}-{}",
            joining.cluster,
            fingerprint.get(..12).unwrap_or_default()
        ),
        key,
    };
    kept.agent.get_or_insert_with(identity::new_agent_name);
    kept.pending = Some(pending.clone());
    joining.store.save(&joining.cluster, kept).await?;
    Ok(pending)
}

/// Sends a certificate request, unless one is pending, and waits for the answer.
pub(super) async fn obtain_certificate(
    hub: &Client,
    joining: &Joining,
    kept: &mut Kept,
) -> Result<String, Error> {
    let api: Api<CertificateSigningRequest> = Api::all(hub.clone());
    let PendingRequest { name, key } = prepare_request(joining, kept).await?;
    let agent = kept.agent.get_or_insert_with(identity::new_agent_name);
    let mut request = identity::request(&joining.cluster, agent, &key)?;
    request.metadata.generate_name = None;
    request.metadata.name = Some(name.clone());
    match api.create(&PostParams::default(), &request).await {
        // It was sent by an earlier attempt.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        answer => {
            answer.context(|| "ask the hub for a certificate".into())?;
        }
    }
    tracing::info!(cluster = %joining.cluster, request = %name, key = identity::fingerprint(&key)?,
        "waiting for the hub to answer the certificate request");
    let answer = certificate::wait(&api, &name).await?;
    if answer.is_none() {
        // Denied, failed or deleted: the next attempt sends another one.
        kept.pending = None;
        joining.store.save(&joining.cluster, kept).await?;
    }
    answer.ok_or_else(|| certificate::refused(&name))
}

/// Keeps the certificate with its key as the identity of this agent.
pub(super) async fn save_certificate(
    joining: &Joining,
    kept: &mut Kept,
    certificate: &str,
) -> Result<Kubeconfig, Error> {
    let key = kept.pending.as_ref().map(|p| p.key.clone()).unwrap_or_default();
    let auth = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(certificate)),
        client_key_data: Some(STANDARD.encode(key).into()),
        ..AuthInfo::default()
    };
    let config = identity::kubeconfig(&joining.bootstrap, auth)?;
    kept.kubeconfig = Some(config.clone());
    kept.pending = None;
    joining.store.save(&joining.cluster, kept).await?;
    Ok(config)
}

async fn ensure_cluster(hub: &Client, joining: &Joining) -> Result<(), Error> {
    let api: Api<ManagedCluster> = Api::all(hub.clone());
    let name = &joining.cluster;
    if api
        .get_opt(name)
        .await
        .context(|| format!("read ManagedCluster {name}"))?
        .is_some()
    {
        return Ok(());
    }
    let cluster = ManagedCluster::new(
        name,
        ManagedClusterSpec {
            managed_cluster_client_configs: joining.client_configs.clone(),
            ..ManagedClusterSpec::default()
        },
    );
    match api.create(&PostParams::default(), &cluster).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer
            .map(drop)
            .context(|| format!("create ManagedCluster {name}")),
    }
}

/// Waits until the agent's own identity can read its cluster, which it can once the cluster is accepted. Until then it has no
/// rights at all, so the bootstrap identity watches. An identity that the hub does not know any more ends the wait.
async fn wait_accepted(bootstrap: &Client, own: &Client, cluster: &str) -> Result<(), Error> {
    let watched: Api<ManagedCluster> = Api::all(bootstrap.clone());
    let api: Api<ManagedCluster> = Api::all(own.clone());
    let mut pauses = pauses();
    let mut refusals = 0;
    loop {
        match api.get(cluster).await {
            Ok(found) if found.spec.hub_accepts_client => return Ok(()),
            Err(error) if matches!(&error, kube::Error::Api(status) if status.code == 401) => {
                // A new identity may be accepted some moments later.
                if refusals == REFUSALS {
                    return Err(error).context(|| "use the identity that the hub gave".into());
                }
                refusals += 1;
                tokio::time::sleep(pauses.next_delay()).await;
            }
            _ => watch::until(&watched, cluster, is_accepted, &mut pauses).await,
        }
    }
}

/// Returns true if the cluster is accepted and the hub has prepared it for its agent.
fn is_accepted(cluster: Option<&ManagedCluster>) -> bool {
    cluster.is_some_and(|cluster| {
        let status = cluster.status.as_ref();
        let done = status.is_some_and(|s| condition::is_true(&s.conditions, CONDITION_HUB_ACCEPTED));
        cluster.spec.hub_accepts_client && done
    })
}

/// The pauses between two attempts while joining.
fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(10))
}

/// Returns true if a kubeconfig holds a valid identity of this cluster, for the hub of the bootstrap kubeconfig.
fn is_good(config: &Kubeconfig, joining: &Joining) -> bool {
    is_of(config, &joining.cluster)
        && is_alive(config, joining.clock.now())
        && identity::server(config) == identity::server(&joining.bootstrap)
}

fn is_of(config: &Kubeconfig, cluster: &str) -> bool {
    let Some(auth) = auth_of(config) else {
        return false;
    };
    if let Some(data) = &auth.client_certificate_data {
        return STANDARD
            .decode(data)
            .ok()
            .and_then(|pem| identity::certificate(&String::from_utf8(pem).ok()?))
            .is_some_and(|(_, subject)| subject.user.starts_with(&identity::user(cluster, "")));
    }
    let account = format!("system:serviceaccount:{cluster}:{AGENT_ACCOUNT}");
    store::token(auth).and_then(|token| identity::token_subject(&token)) == Some(account)
}

fn is_alive(config: &Kubeconfig, now: Timestamp) -> bool {
    lifetime(config).is_some_and(|life| life.until > now)
}

/// The life of the identity in a kubeconfig.
pub(super) fn lifetime(config: &Kubeconfig) -> Option<Lifetime> {
    let auth = auth_of(config)?;
    if let Some(data) = &auth.client_certificate_data {
        let pem = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
        return identity::certificate(&pem).map(|(life, _)| life);
    }
    identity::token(&store::token(auth)?)
}

/// A client with the identity of a kubeconfig.
pub(super) async fn client(config: &Kubeconfig) -> Result<Client, Error> {
    let config = Config::from_custom_kubeconfig(config.clone(), &KubeConfigOptions::default())
        .await
        .map_err(|e| Error::io("read the kubeconfig of the hub", e))?;
    writ_process::client::connect(config).context(|| "make a client of the hub".into())
}
