//! Follows accounts, and reads a Secret only when its token is new.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt, stream};
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

use crate::{Token, read};

/// Something happened to a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is a token, or a newer one.
    Fresh(Token),
    /// The account is gone, and its token with it.
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

/// What is remembered of an account: when its token was renewed last.
type Known = BTreeMap<(String, String), Option<Timestamp>>;

/// What an event asks for.
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

    /// Follows the accounts of this name: every token there is, each new one, and each that goes. A Secret that cannot
    /// be read is logged and tried again with the account's next change.
    pub fn follow(&self, name: &str) -> impl Stream<Item = Change> + Send + Unpin + use<> {
        let api: Api<Watched> = match &self.cluster {
            Some(cluster) => Api::namespaced(self.hub.clone(), cluster),
            None => Api::all(self.hub.clone()),
        };
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let hub = self.hub.clone();
        let mut known = Known::new();
        let mut listed = Known::new();
        watcher(api, config)
            .default_backoff()
            .filter_map(|event| async move {
                event
                    .inspect_err(|error| tracing::debug!(%error, "the watch failed, will start it again"))
                    .ok()
            })
            .flat_map(move |event| stream::iter(asks(event, &mut known, &mut listed)))
            .filter_map(move |ask| {
                let hub = hub.clone();
                async move {
                    let account = match ask {
                        Ask::Gone(cluster, name) => return Some(Change::Gone { cluster, name }),
                        Ask::Read(account) => account,
                    };
                    let (cluster, name) = (account.namespace().unwrap_or_default(), account.name_any());
                    read(&hub, &account, &cluster, &name)
                        .await
                        .inspect_err(|error| tracing::warn!(%error, "cannot read a token"))
                        .ok()
                        .map(Change::Fresh)
                }
            })
            .boxed()
    }
}

/// What an event means, given what is known.
fn asks(event: Event<Watched>, known: &mut Known, listed: &mut Known) -> Vec<Ask> {
    let id = |account: &Watched| (account.namespace().unwrap_or_default(), account.name_any());
    let refreshed = |account: &ManagedServiceAccount| {
        let status = account.status.as_ref()?;
        status
            .token_secret_ref
            .as_ref()
            .map(|at| at.last_refresh_timestamp.0)
    };
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
            let news = at.is_some() && known.get(&id) != Some(&at);
            known.insert(id, at);
            if news {
                vec![Ask::Read(Box::new(account))]
            } else {
                Vec::new()
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
    fn a_secret_is_read_once_per_token() {
        let (mut known, mut listed) = (Known::new(), Known::new());
        let mut on = |event| names(&asks(event, &mut known, &mut listed));
        assert!(on(Event::Init).is_empty());
        assert!(on(Event::InitApply(account(None))).is_empty(), "no token yet");
        assert!(on(Event::InitDone).is_empty());
        assert_eq!(on(Event::Apply(account(Some(1)))), ["read"]);
        assert!(
            on(Event::Apply(account(Some(1)))).is_empty(),
            "another change of the account"
        );
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
