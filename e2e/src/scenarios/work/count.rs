//! Clients that remember what was asked with them, or hold it back.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http::{Method, Request};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::sync::Barrier;
use tower::{BoxError, service_fn, util::MapRequestLayer};

/// What was asked: method and path, in order.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    /// A client of this kubeconfig whose requests are remembered here.
    pub async fn client(&self, kubeconfig: Kubeconfig) -> Result<Client> {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let seen = Arc::clone(&self.0);
        let remember = MapRequestLayer::new(move |request: Request<Body>| {
            let asked = format!("{} {}", request.method(), request.uri());
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
            request
        });
        Ok(ClientBuilder::try_from(config)?.with_layer(&remember).build())
    }

    /// The requests that hold this text, since the last time all were taken.
    pub fn holding(&self, text: &str) -> Vec<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter()
            .filter(|asked| asked.contains(text))
            .cloned()
            .collect()
    }

    /// Forgets all.
    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A client that sends writes to paths with this text only so many at once: whoever waits for the answer of one
/// before it sends the next waits for ever.
pub fn together(client: Client, text: &'static str, many: usize) -> Client {
    let barrier = Arc::new(Barrier::new(many));
    let service = service_fn(move |request: Request<Body>| {
        let (client, barrier) = (client.clone(), barrier.clone());
        async move {
            let writes = [Method::POST, Method::PATCH].contains(request.method());
            if writes && request.uri().path().contains(text) {
                barrier.wait().await;
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}
