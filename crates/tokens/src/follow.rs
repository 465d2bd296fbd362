//! Follows accounts, and reads a Secret only when its token is new.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use futures::{
    FutureExt, Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use writ_api::authentication::ManagedServiceAccount;

use crate::{Error, Token, read};

/// A change of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A token, or a newer one.
    Fresh(Token),
    /// The account is gone, or its token was taken away.
    Gone {
        /// The cluster.
        cluster: String,
        /// The account.
        name: String,
    },
}

/// The tokens of a hub.
#[derive(Clone)]
pub struct Tokens {
    hub: Client,
    cluster: Option<String>,
}

type Watched = DeserializeGuard<ManagedServiceAccount>;

/// The accounts with the last renewal of their token.
type Known = BTreeMap<(String, String), Option<Timestamp>>;

/// What to do after an event.
enum Ask {
    Read(Box<ManagedServiceAccount>),
    Gone(String, String),
}

impl Tokens {
    /// The tokens of every cluster.
    pub fn new(hub: Client) -> Self {
        Self { hub, cluster: None }
    }

    /// The tokens of one cluster only.
    pub fn of_cluster(hub: Client, cluster: &str) -> Self {
        Self {
            hub,
            cluster: Some(cluster.into()),
        }
    }

    /// Follows the accounts of this name: returns every existing token, each new one, and each removal. A Secret that
    /// cannot be read is logged and retried after growing pauses, from half a second to a minute.
    pub fn follow(&self, name: &str) -> impl Stream<Item = Change> + Send + Unpin + use<> {
        let api: Api<Watched> = match &self.cluster {
            Some(cluster) => Api::namespaced(self.hub.clone(), cluster),
            None => Api::all(self.hub.clone()),
        };
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let events = watcher(api, config)
            .default_backoff()
            .filter_map(|event| async move {
                event
                    .inspect_err(|error| tracing::debug!(%error, "the watch failed and is restarted"))
                    .ok()
            })
            .boxed();
        let following = Following {
            hub: self.hub.clone(),
            events,
            known: Known::new(),
            listed: Known::new(),
            changes: VecDeque::new(),
            waiting: VecDeque::new(),
            reading: FuturesUnordered::new(),
            pausing: FuturesUnordered::new(),
        };
        stream::unfold(following, |mut following| async move {
            let change = following.next().await?;
            Some((change, following))
        })
        .boxed()
    }
}

/// How many Secrets are read side by side.
const CONCURRENCY: usize = 16;

/// A Secret that is to be read.
struct Attempt {
    account: Box<ManagedServiceAccount>,
    failures: u32,
}

struct Following {
    hub: Client,
    events: BoxStream<'static, Event<Watched>>,
    known: Known,
    listed: Known,
    changes: VecDeque<Change>,
    waiting: VecDeque<Attempt>,
    reading: FuturesUnordered<BoxFuture<'static, (Attempt, Result<Token, Error>)>>,
    /// Failed attempts until their retry.
    pausing: FuturesUnordered<BoxFuture<'static, Attempt>>,
}

impl Following {
    async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Some(change);
            }
            while self.reading.len() < CONCURRENCY
                && let Some(attempt) = self.waiting.pop_front()
            {
                if self.is_current(&attempt) {
                    self.reading.push(attempt.read(self.hub.clone()).boxed());
                }
            }
            tokio::select! {
                event = self.events.next() => {
                    for ask in handle(event?, &mut self.known, &mut self.listed) {
                        match ask {
                            Ask::Read(account) => self.waiting.push_back(Attempt { account, failures: 0 }),
                            Ask::Gone(cluster, name) => self.changes.push_back(Change::Gone { cluster, name }),
                        }
                    }
                }
                Some((attempt, token)) = self.reading.next() => match token {
                    Ok(token) if self.is_current(&attempt) => return Some(Change::Fresh(token)),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot read a token, retrying");
                        self.pausing.push(attempt.pause().boxed());
                    }
                },
                Some(attempt) = self.pausing.next() => self.waiting.push_back(attempt),
            }
        }
    }

    /// Whether no newer token of the account is known.
    fn is_current(&self, attempt: &Attempt) -> bool {
        self.known.get(&id(&*attempt.account)) == Some(&refreshed(&attempt.account))
    }
}

impl Attempt {
    async fn read(self, hub: Client) -> (Self, Result<Token, Error>) {
        let (cluster, name) = id(&*self.account);
        let token = read(&hub, &self.account, &cluster, &name).await;
        (self, token)
    }

    async fn pause(self) -> Self {
        tokio::time::sleep(Duration::from_millis(500 << self.failures.min(7))).await;
        Self {
            failures: self.failures.saturating_add(1),
            ..self
        }
    }
}

fn id(account: &impl kube::Resource) -> (String, String) {
    (account.namespace().unwrap_or_default(), account.name_any())
}

fn refreshed(account: &ManagedServiceAccount) -> Option<Timestamp> {
    let reference = account.status.as_ref()?.token_secret_ref.as_ref()?;
    Some(reference.last_refresh_timestamp.0)
}

/// What to do after an event.
fn handle(event: Event<Watched>, known: &mut Known, listed: &mut Known) -> Vec<Ask> {
    match event {
        Event::Init => {
            listed.clear();
            Vec::new()
        }
        Event::Apply(account) | Event::InitApply(account) => {
            let id = id(&account);
            let Ok(account) = account.0 else {
                return Vec::new();
            };
            let at = refreshed(&account);
            listed.insert(id.clone(), at);
            match (known.insert(id.clone(), at), at) {
                (before, Some(_)) if before != Some(at) => vec![Ask::Read(Box::new(account))],
                (Some(Some(_)), None) => vec![Ask::Gone(id.0, id.1)],
                _ => Vec::new(),
            }
        }
        Event::InitDone => {
            let gone: Vec<_> = known
                .keys()
                .filter(|id| !listed.contains_key(*id))
                .cloned()
                .collect();
            known.clone_from(listed);
            gone.into_iter()
                .map(|(cluster, name)| Ask::Gone(cluster, name))
                .collect()
        }
        Event::Delete(account) => {
            let (cluster, name) = id(&account);
            let was_there = known.remove(&(cluster.clone(), name.clone())).is_some();
            if was_there {
                vec![Ask::Gone(cluster, name)]
            } else {
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn account(refreshed: Option<i64>) -> Watched {
        let at = refreshed.map(|second| Timestamp::from_second(second).unwrap().to_string());
        let status = at.map(|at| json!({ "tokenSecretRef": { "name": "a", "lastRefreshTimestamp": at } }));
        let mut object = json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
            "metadata": { "name": "a", "namespace": "c1" }, "spec": { "rotation": {} },
        });
        if let Some(status) = status {
            object["status"] = status;
        }
        DeserializeGuard(Ok(serde_json::from_value(object).unwrap()))
    }

    fn names(asks: &[Ask]) -> Vec<&'static str> {
        asks.iter()
            .map(|ask| match ask {
                Ask::Read(_) => "read",
                Ask::Gone(..) => "gone",
            })
            .collect()
    }

    #[test]
    fn secret_is_read_once_per_token() {
        let (mut known, mut listed) = (Known::new(), Known::new());
        let mut on = |event| names(&handle(event, &mut known, &mut listed));
        assert!(on(Event::Init).is_empty());
        assert!(on(Event::InitApply(account(None))).is_empty(), "no token yet");
        assert!(on(Event::InitDone).is_empty());
        assert_eq!(on(Event::Apply(account(Some(1)))), ["read"]);
        assert!(
            on(Event::Apply(account(Some(1)))).is_empty(),
            "another change of the account"
        );
        assert_eq!(on(Event::Apply(account(Some(2)))), ["read"]);
        assert_eq!(on(Event::Apply(account(None))), ["gone"], "it was taken away");
        assert!(on(Event::Apply(account(None))).is_empty());
        assert_eq!(on(Event::Apply(account(Some(2)))), ["read"]);
        // The watch starts again: what is as before is not read again, what is missing is gone.
        assert!(on(Event::Init).is_empty());
        assert!(on(Event::InitApply(account(Some(2)))).is_empty());
        assert!(on(Event::InitDone).is_empty());
        assert!(on(Event::Init).is_empty());
        assert_eq!(on(Event::InitDone), ["gone"]);
        assert!(on(Event::Delete(account(Some(2)))).is_empty());
    }
}
