//! Foreign Secrets that have the name of an account: each is watched until it is gone or becomes the account's, and then its
//! cluster is reconciled. Only metadata is kept in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _, core::PartialObjectMeta, runtime::wait::await_condition};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_api::authentication::LABEL_MANAGED;
use writ_controller::{Name, Queue, backoff::Backoff};

use super::model::Key;

/// How many are watched at the same time.
const MAX: usize = 256;

/// How soon a cluster is reconciled again that has more of them than can be watched.
pub const RECHECK: Duration = Duration::from_secs(30);

/// The Secrets that are watched.
pub struct ForeignSecrets {
    client: Client,
    queue: Queue<Key>,
    shutdown: CancellationToken,
    watched: Mutex<BTreeMap<Name, JoinHandle<()>>>,
}

impl ForeignSecrets {
    /// No watch runs yet; clusters to reconcile go into `queue`.
    pub fn new(client: Client, queue: Queue<Key>, shutdown: CancellationToken) -> Self {
        Self {
            client,
            queue,
            shutdown,
            watched: Mutex::default(),
        }
    }

    /// Watches exactly these Secrets of a cluster's namespace. Returns false if that are too many.
    pub fn watch_until_gone(&self, cluster: &str, names: &BTreeSet<String>) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|secret, task| {
            let wanted = *secret.namespace != *cluster || names.contains(&*secret.name);
            if !wanted {
                task.abort();
            }
            wanted && !task.is_finished()
        });
        for name in names {
            let secret = Name::new(cluster, name.as_str());
            if watched.contains_key(&secret) {
                continue;
            }
            if watched.len() >= MAX {
                return false;
            }
            let (client, queue, shutdown) = (self.client.clone(), self.queue.clone(), self.shutdown.clone());
            let of = secret.clone();
            let task = tokio::spawn(async move {
                shutdown
                    .run_until_cancelled(until_gone_or_managed(client, &of))
                    .await;
                queue.add(Key::Cluster(of.namespace));
            });
            watched.insert(secret, task);
        }
        true
    }
}

async fn until_gone_or_managed(client: Client, secret: &Name) {
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, &secret.namespace);
    let is_free = |secret: Option<&PartialObjectMeta<Secret>>| {
        let label = secret.map(|secret| secret.labels().get(LABEL_MANAGED));
        label.is_none_or(|label| label.is_some_and(|value| value == "true"))
    };
    let mut pauses = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
    while let Err(error) = await_condition(secrets.clone(), &secret.name, is_free).await {
        tracing::debug!(%secret, %error, "the watch of a Secret is interrupted, trying again");
        tokio::time::sleep(pauses.next_delay()).await;
    }
}
