//! Notices when the hub does not know this agent's identity any more.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode};
use kube::{Api, Client, client::Body};
use tokio::sync::Notify;
use writ_api::cluster::ManagedCluster;
use writ_controller::backoff::jitter;

/// How long the hub may take to answer.
const HUB_ANSWERS: Duration = Duration::from_secs(5);
/// How long after a refusal the hub is asked again, before that is believed.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The same client, and a notice whenever the hub answers that it does not know the identity.
pub fn with_unauthorized_notice(client: Client) -> (Client, Arc<Notify>) {
    let namespace = client.default_namespace().to_owned();
    let unauthorized = Arc::new(Notify::new());
    let notice = unauthorized.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, notice) = (client.clone(), notice.clone());
        async move {
            let answer = client.send(request).await;
            let status = answer.as_ref().map(http::Response::status);
            if status.is_ok_and(|status| status == StatusCode::UNAUTHORIZED) {
                notice.notify_one();
            }
            answer
        }
    });
    (Client::new(service, namespace), unauthorized)
}

/// Returns once the hub refuses the identity, and does so again when asked again: one answer may be a hiccup.
pub async fn until_refused(unauthorized: &Notify, hub: &Client, cluster: &str) {
    loop {
        unauthorized.notified().await;
        tokio::time::sleep(jitter(ASK_AGAIN)).await;
        if is_refused(hub, cluster).await {
            return;
        }
    }
}

/// Returns true if the hub says that it does not know the identity: the account of a token is gone. No answer means nothing.
pub async fn is_refused(hub: &Client, cluster: &str) -> bool {
    let clusters: Api<ManagedCluster> = Api::all(hub.clone());
    let answer = tokio::time::timeout(HUB_ANSWERS, clusters.get_metadata_opt(cluster)).await;
    matches!(answer, Ok(Err(kube::Error::Api(status))) if status.code == StatusCode::UNAUTHORIZED.as_u16())
}
