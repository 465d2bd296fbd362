//! Keeps an identity: runs the agent with it, renews it, and restarts the agent with the new one.

use std::{future::Future, time::Duration};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    config::Kubeconfig,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_api::cluster::ManagedCluster;
use writ_controller::{
    Error,
    backoff::{Backoff, jitter},
    condition,
    error::Context as _,
    renewal,
};

use super::{
    identity_check::{until_refused, with_unauthorized_notice},
    join::{client, join, lifetime, obtain_certificate, request_token, save_certificate, save_token},
    model::{Driver, Joining},
    plan,
    store::auth_of,
};

/// The least time between two renewals.
const BETWEEN_RENEWALS: Duration = Duration::from_secs(5);

/// Runs `agent` with its own identity until shutdown; restarts it with each renewed one.
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
        let (hub, unauthorized) = with_unauthorized_notice(client(&config).await?);
        let round = shutdown.child_token();
        let running = agent(hub.clone(), round.clone());
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = renew(joining, &config, &hub) => round.cancel(),
            () = until_refused(&unauthorized, &hub, &joining.cluster) => round.cancel(),
        }
        running.await?;
        if shutdown.is_cancelled() {
            return Ok(());
        }
    }
}

/// Returns once the store holds a newer identity, or the present one has expired.
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

/// Reports a renewal to the hub. A token is renewed every few days, and that is not reported.
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
            // The hub writes conditions too: they are read again and kept.
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
        return save_token(joining, &mut kept, &token).await;
    }
    let certificate = obtain_certificate(hub, joining, &mut kept).await?;
    save_certificate(joining, &mut kept, &certificate).await
}
