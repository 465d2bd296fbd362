//! Notices when the hub does not know this agent's identity any more.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::{Api, Client, client::Body};
use tokio::sync::Notify;
use writ_api::cluster::ManagedCluster;
use writ_controller::backoff::jitter;

/// How long the hub may take to say whether it knows an identity.
const HUB_ANSWERS: Duration = Duration::from_secs(5);
/// How long after a refusal it is asked again, before it is believed.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The same client; whenever the hub answers that it does not know who asks, somebody is told.
pub fn noticed(client: Client) -> (Client, Arc<Notify>) {
    let namespace = client.default_namespace().to_owned();
    let told = Arc::new(Notify::new());
    let tell = told.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, tell) = (client.clone(), tell.clone());
        async move {
            let answer = client.send(request).await;
            if answer
                .as_ref()
                .is_ok_and(|answer| answer.status() == StatusCode::UNAUTHORIZED)
            {
                tell.notify_one();
            }
            answer
        }
    });
    (Client::new(service, namespace), told)
}

/// Returns once the hub refuses the identity, and does so again when asked: one answer may be a hiccup.
pub async fn refused(told: &Notify, hub: &Client, cluster: &str) {
    loop {
        told.notified().await;
        tokio::time::sleep(jitter(ASK_AGAIN)).await;
        if is_refused(hub, cluster).await {
            return;
        }
    }
}

/// Whether the hub says that it does not know who asks: the account of a token is gone. One that does not answer says
/// nothing.
pub async fn is_refused(hub: &Client, cluster: &str) -> bool {
    let clusters: Api<ManagedCluster> = Api::all(hub.clone());
    let answer = tokio::time::timeout(HUB_ANSWERS, clusters.get_metadata_opt(cluster)).await;
    matches!(answer, Ok(Err(kube::Error::Api(status))) if status.code == StatusCode::UNAUTHORIZED.as_u16())
}
