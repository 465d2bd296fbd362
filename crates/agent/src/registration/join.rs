//! The way in: with a bootstrap identity to an own one, and from each own one to the next.

use std::{future::Future, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_api::cluster::{
    ManagedCluster,
    managed_cluster::{CONDITION_HUB_ACCEPTED, ClientConfig, ManagedClusterSpec},
};
use writ_controller::{
    Error,
    backoff::{Backoff, jitter},
    clock::Clock,
    condition,
    error::Context as _,
    renewal, watching,
};
use writ_process::token;

use super::{
    certificate,
    identity::{self, Lifetime},
    identity_check::{is_refused, noticed, refused},
    plan,
    store::{self, Kept, PendingRequest, Store, auth_of},
};

/// The account of an agent on a hub with the token driver.
const AGENT_ACCOUNT: &str = "managed-cluster-agent";
/// The least time between two renewals.
const BETWEEN_RENEWALS: Duration = Duration::from_secs(5);
/// How long the hub may take to say whether the cluster is still there.
const HUB_ANSWERS: Duration = Duration::from_secs(5);
/// How often the hub may refuse a new identity before it is given up.
const REFUSALS: u32 = 6;
/// How long a token lives: the last fifth of it is longer than a day, so that a hub that is away for a day takes no
/// agent's identity. Denying or detaching the cluster ends it at once.
pub(super) const TOKEN_SECONDS: i64 = 6 * 24 * 3600;

/// How the hub lets agents prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// A client certificate, asked for with a CertificateSigningRequest.
    #[default]
    Csr,
    /// A token of the cluster's own ServiceAccount, on hubs that sign no certificates. The identity to start with
    /// must be this account's, or one that may ask for its tokens: a shared one never is.
    Token,
}

/// What it takes to join.
#[derive(Clone)]
pub struct Joining {
    /// The name of this cluster on the hub.
    pub cluster: String,
    /// The identity to start with.
    pub bootstrap: Kubeconfig,
    /// Where the own identity is kept.
    pub store: Store,
    /// Where the API server of this cluster can be reached, if the hub shall know.
    pub client_configs: Vec<ClientConfig>,
    /// How the hub lets agents prove who they are.
    pub driver: Driver,
    /// What time it is.
    pub clock: Clock,
}

/// Joins the hub and returns the kubeconfig with the own identity. Waits until the cluster is accepted.
///
/// What was begun before is continued: a request that was sent is not sent again, so that whoever accepts the
/// cluster finds one request and not several.
pub async fn join(joining: &Joining) -> Result<Kubeconfig, Error> {
    let mut kept = joining.store.load().await?;
    let hub = client(&joining.bootstrap).await?;
    if let Some(config) = kept.kubeconfig.take().filter(|c| is_good(c, joining)) {
        let why = if is_detached(&hub, &joining.cluster).await {
            "the cluster is not on the hub any more"
        } else if is_refused(&client(&config).await?, &joining.cluster).await {
            "the hub does not know the identity of before any more"
        } else {
            return Ok(config);
        };
        tracing::info!(cluster = %joining.cluster, "{why}: joining anew");
        kept.pending = None;
    }
    if joining.driver == Driver::Csr {
        prepare(joining, &mut kept).await?;
    }
    let ensured = ensure_cluster(&hub, joining).await;
    if joining.driver == Driver::Token {
        // A token that was handed over is of a cluster that is there, and may count some moments later.
        let first = match ensured {
            Err(error) if !error.is_code(403) => Err(error),
            _ => first_token(&hub, &joining.cluster).await,
        };
        let first = first.map_err(|error| ended(error, &joining.cluster))?;
        let config = with_token(joining, &mut kept, &first).await?;
        wait_accepted(&hub, &client(&config).await?, &joining.cluster).await?;
        return Ok(config);
    }
    ensured?;
    let certificate = obtain(&hub, joining, &mut kept).await?;
    let config = finish(joining, &mut kept, &certificate).await?;
    wait_accepted(&hub, &client(&config).await?, &joining.cluster).await?;
    Ok(config)
}

/// Whether the hub says that there is no such cluster. One that does not answer, or not to the identity to start with,
/// which may have ended long ago, says nothing.
async fn is_detached(bootstrap: &Client, cluster: &str) -> bool {
    let clusters: Api<ManagedCluster> = Api::all(bootstrap.clone());
    let there = tokio::time::timeout(HUB_ANSWERS, clusters.get_metadata_opt(cluster)).await;
    matches!(there, Ok(Ok(None)))
}

/// What is kept from an earlier [`join`], if it is an identity of this cluster that is still good.
pub async fn joined_before(store: &Store, cluster: &str) -> Result<Option<Kubeconfig>, Error> {
    let kept = store.load().await?;
    Ok(kept
        .kubeconfig
        .filter(|config| is_of(config, cluster) && is_alive(config, Timestamp::now())))
}

/// What to do about an identity to start with that the hub does not know any more.
fn ended(error: Error, cluster: &str) -> Error {
    if error.is_code(401) {
        return Error::Invalid(format!(
            "the hub does not know this identity any more ({error}); `writ accept {cluster} --hub-kubeconfig-out FILE` on \
             the hub writes a new one: start the agent with that"
        ));
    }
    error
}

/// Waits for a token of the cluster's own account: it is there once the cluster is accepted.
async fn first_token(hub: &Client, cluster: &str) -> Result<String, Error> {
    let clusters: Api<ManagedCluster> = Api::all(hub.clone());
    let mut pauses = pauses();
    let mut told = false;
    loop {
        match request_token(hub, cluster).await {
            Err(error) if error.is_code(403) || error.is_code(404) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(%cluster, %error, "no token yet: the cluster is not accepted, or this identity may \
                        not ask for tokens of {cluster}/{AGENT_ACCOUNT}");
                }
                watching::until(&clusters, cluster, is_accepted, &mut pauses).await;
            }
            answer => return answer,
        }
    }
}

/// A token of the cluster's own account.
async fn request_token(hub: &Client, cluster: &str) -> Result<String, Error> {
    let token = token::request(hub, cluster, AGENT_ACCOUNT, Some(TOKEN_SECONDS)).await?;
    Ok(token.text)
}

/// Keeps a token as the identity of this agent.
async fn with_token(joining: &Joining, kept: &mut Kept, token: &str) -> Result<Kubeconfig, Error> {
    let auth = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    let config = identity::kubeconfig(&joining.bootstrap, auth)?;
    kept.kubeconfig = Some(config.clone());
    joining.store.save(&joining.cluster, kept).await?;
    Ok(config)
}

/// Runs `agent` with an own identity until shutdown; starts it anew with each renewed one.
pub async fn keep<F, Fut>(joining: &Joining, shutdown: CancellationToken, mut agent: F) -> Result<(), Error>
where
    F: FnMut(Client, CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), Error>>,
{
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    loop {
        let joined = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            joined = join(joining) => joined,
        };
        let config = match joined {
            Ok(config) => config,
            Err(error) => {
                tracing::warn!(%error, "could not join yet, trying again");
                tokio::select! {
                    () = shutdown.cancelled() => return Ok(()),
                    () = tokio::time::sleep(backoff.next_delay()) => continue,
                }
            }
        };
        backoff.reset();
        let (hub, told) = noticed(client(&config).await?);
        let round = shutdown.child_token();
        let running = agent(hub.clone(), round.clone());
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = renew(joining, &config, &hub) => round.cancel(),
            () = refused(&told, &hub, &joining.cluster) => round.cancel(),
        }
        running.await?;
        if shutdown.is_cancelled() {
            return Ok(());
        }
    }
}

/// Returns once the store holds a newer identity, or the present one is of no use any more.
async fn renew(joining: &Joining, config: &Kubeconfig, hub: &Client) {
    let Some(lifetime) = lifetime(config) else {
        return std::future::pending().await;
    };
    let clock = joining.clock;
    let renew_at = renewal::renew_at(lifetime.from, lifetime.until, &joining.cluster);
    // Clocks that disagree must not make the agent ask in a loop.
    tokio::time::sleep(jitter(BETWEEN_RENEWALS)).await;
    while clock.now() < renew_at {
        clock.sleep_until(Some(renew_at)).await;
    }
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(2));
    while clock.now() < lifetime.until {
        let renewed = renew_once(joining, config, hub).await;
        if let Err(error) = report_renewal(joining, hub, &renewed).await {
            tracing::warn!(%error, "could not report on the renewal");
        }
        match renewed {
            Ok(_) => return,
            Err(error) => tracing::warn!(%error, "could not renew the identity, trying again"),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Tells the hub what became of a renewal. A token is renewed every few days, and nothing is told of it.
async fn report_renewal(
    joining: &Joining,
    hub: &Client,
    renewed: &Result<Kubeconfig, Error>,
) -> Result<(), Error> {
    if joining.driver == Driver::Token {
        return Ok(());
    }
    let wanted = plan::renewal(renewed.as_ref().map(lifetime));
    let api: Api<ManagedCluster> = Api::all(hub.clone());
    let name = &joining.cluster;
    loop {
        let cluster = api
            .get(name)
            .await
            .context(|| format!("read ManagedCluster {name}"))?;
        let mut conditions = cluster.status.unwrap_or_default().conditions;
        if !condition::set(
            &mut conditions,
            &wanted,
            cluster.metadata.generation,
            joining.clock.now(),
        ) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"uid": cluster.metadata.uid, "resourceVersion": cluster.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        match api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            // Others write conditions too: theirs are read again and kept.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => {
                return answer
                    .map(drop)
                    .context(|| format!("report on ManagedCluster {name}"));
            }
        }
    }
}

async fn renew_once(joining: &Joining, config: &Kubeconfig, hub: &Client) -> Result<Kubeconfig, Error> {
    let mut kept = joining.store.load().await?;
    if auth_of(config).is_some_and(|auth| auth.token.is_some()) {
        let token = request_token(hub, &joining.cluster).await?;
        return with_token(joining, &mut kept, &token).await;
    }
    let certificate = obtain(hub, joining, &mut kept).await?;
    finish(joining, &mut kept, &certificate).await
}

/// Keeps a key and the name of its request, unless one is on its way. Before anything is sent: a request whose key is
/// lost waits on the hub for ever, beside the one of the next attempt.
async fn prepare(joining: &Joining, kept: &mut Kept) -> Result<PendingRequest, Error> {
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

/// Sends a certificate request, unless one is on its way, and waits for the answer.
async fn obtain(hub: &Client, joining: &Joining, kept: &mut Kept) -> Result<String, Error> {
    let api: Api<CertificateSigningRequest> = Api::all(hub.clone());
    let PendingRequest { name, key } = prepare(joining, kept).await?;
    let agent = kept.agent.get_or_insert_with(identity::new_agent_name);
    let mut request = identity::request(&joining.cluster, agent, &key)?;
    request.metadata.generate_name = None;
    request.metadata.name = Some(name.clone());
    match api.create(&PostParams::default(), &request).await {
        // It was sent before.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        answer => {
            answer.context(|| "ask the hub for a certificate".into())?;
        }
    }
    tracing::info!(cluster = %joining.cluster, request = %name, key = identity::fingerprint(&key)?,
        "waiting for the hub to answer the certificate request");
    let answer = certificate::answer(&api, &name).await?;
    if answer.is_none() {
        // Denied, failed or removed: the next attempt asks anew.
        kept.pending = None;
        joining.store.save(&joining.cluster, kept).await?;
    }
    answer.ok_or_else(|| certificate::none_given(&name))
}

/// Keeps the certificate with its key as the identity of this agent.
async fn finish(joining: &Joining, kept: &mut Kept, certificate: &str) -> Result<Kubeconfig, Error> {
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

/// Waits until the own identity can read its cluster, which it can once the cluster is accepted. Until then it may do
/// nothing at all: the identity to start with is the one that watches. An identity that the hub does not know any more is
/// not waited with.
async fn wait_accepted(bootstrap: &Client, own: &Client, cluster: &str) -> Result<(), Error> {
    let watched: Api<ManagedCluster> = Api::all(bootstrap.clone());
    let api: Api<ManagedCluster> = Api::all(own.clone());
    let mut pauses = pauses();
    let mut refusals = 0;
    loop {
        match api.get(cluster).await {
            Ok(found) if found.spec.hub_accepts_client => return Ok(()),
            Err(error) if matches!(&error, kube::Error::Api(status) if status.code == 401) => {
                // A new one may be known some moments later.
                if refusals == REFUSALS {
                    return Err(error).context(|| "use the identity that the hub gave".into());
                }
                refusals += 1;
                tokio::time::sleep(pauses.next_delay()).await;
            }
            _ => watching::until(&watched, cluster, is_accepted, &mut pauses).await,
        }
    }
}

/// Whether somebody has accepted the cluster and the hub has given its agent what an agent needs.
fn is_accepted(cluster: Option<&ManagedCluster>) -> bool {
    cluster.is_some_and(|cluster| {
        let status = cluster.status.as_ref();
        let done = status.is_some_and(|s| condition::is_true(&s.conditions, CONDITION_HUB_ACCEPTED));
        cluster.spec.hub_accepts_client && done
    })
}

/// Between two attempts while joining.
fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(10))
}

/// Whether a kubeconfig holds a live identity of this cluster, for the hub that the agent is told to join.
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

fn lifetime(config: &Kubeconfig) -> Option<Lifetime> {
    let auth = auth_of(config)?;
    if let Some(data) = &auth.client_certificate_data {
        let pem = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
        return identity::certificate(&pem).map(|(life, _)| life);
    }
    identity::token(&store::token(auth)?)
}

async fn client(config: &Kubeconfig) -> Result<Client, Error> {
    let config = Config::from_custom_kubeconfig(config.clone(), &KubeConfigOptions::default())
        .await
        .map_err(|e| Error::io("read the kubeconfig of the hub", e))?;
    writ_process::client::connect(config).context(|| "make a client of the hub".into())
}
