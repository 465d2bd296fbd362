//! Secrets of somebody else that have the name of an account: each is watched until it goes or becomes the account's,
//! and then its cluster is looked at again. Nothing but its metadata is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use futures::{SinkExt as _, StreamExt as _, channel::mpsc};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_api::authentication::LABEL_MANAGED;

use super::{controller::Key, mirror::Id};

/// How many are watched at the same time.
const MAX: usize = 256;

/// How soon a cluster is looked at again that has more of them than can be watched.
pub const RECHECK: SignedDuration = SignedDuration::from_secs(30);

/// The Secrets that are watched.
pub struct Strangers {
    wake: mpsc::Sender<Key>,
    shutdown: CancellationToken,
    watched: Mutex<BTreeMap<Id, JoinHandle<()>>>,
}

impl Strangers {
    /// None yet; what to look at again comes out of the other end of `wake`.
    pub fn new(wake: mpsc::Sender<Key>, shutdown: CancellationToken) -> Self {
        Self {
            wake,
            shutdown,
            watched: Mutex::default(),
        }
    }

    /// Watches exactly these Secrets of a cluster's namespace. Returns whether there was room for all.
    pub fn follow(&self, client: &Client, cluster: &str, names: &BTreeSet<String>) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|(namespace, name), task| {
            let wanted = namespace != cluster || names.contains(name);
            if !wanted {
                task.abort();
            }
            wanted && !task.is_finished()
        });
        for name in names {
            let id = (cluster.to_owned(), name.clone());
            if watched.contains_key(&id) {
                continue;
            }
            if watched.len() >= MAX {
                return false;
            }
            let (client, wake, shutdown) = (client.clone(), self.wake.clone(), self.shutdown.clone());
            let of = id.clone();
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = until_it_goes(client, of, wake) => {}
                }
            });
            watched.insert(id, task);
        }
        true
    }
}

async fn until_it_goes(client: Client, (cluster, name): Id, mut wake: mpsc::Sender<Key>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, &cluster);
    let events = watcher(secrets, config).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut there = false;
    while let Some(event) = events.next().await {
        let done = match event {
            Ok(Event::Init) => {
                there = false;
                false
            }
            Ok(Event::InitApply(secret) | Event::Apply(secret)) => {
                there = true;
                secret
                    .labels()
                    .get(LABEL_MANAGED)
                    .is_some_and(|value| value == "true")
            }
            Ok(Event::InitDone) => !there,
            Ok(Event::Delete(_)) => true,
            Err(error) => {
                tracing::debug!(%error, "the watch of a Secret failed, will start it again");
                false
            }
        };
        if done {
            // Nobody listens any more only when the controller ends.
            let _ = wake.send(Key::Cluster(cluster)).await;
            return;
        }
    }
}
