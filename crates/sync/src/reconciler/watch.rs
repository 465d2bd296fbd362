//! Watches on the objects of one sync: only its own, only where it has some.

use std::{collections::HashSet, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::Value;
use tokio::{sync::mpsc, task::AbortHandle};
use writ_runtime::backoff::Backoff;

use super::{discovery::Kind, object::Key};
use crate::names;

/// What is watched: a kind, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; all of them, or none, if empty.
    pub namespace: String,
}

/// What a watch saw.
pub enum Seen {
    /// An object as it is now.
    Live {
        /// Which one.
        key: Key,
        /// What it looks like.
        object: Box<Value>,
        /// Who wrote to it last, as far as field managers tell.
        by: Option<String>,
    },
    /// An object that is gone, or does not carry our label any more.
    Gone(Key),
    /// Everything that is there was sent.
    Ready(Scope),
    /// The account may not watch here.
    Refused(Scope, String),
}

/// A watch that ends when it is dropped.
pub struct Watch {
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a watch on the objects of the set.
pub fn start(client: &Client, kind: &Kind, scope: Scope, set: &str, seen: mpsc::Sender<Seen>) -> Watch {
    let api: Api<DynamicObject> = if scope.namespace.is_empty() {
        Api::all_with(client.clone(), &kind.resource)
    } else {
        Api::namespaced_with(client.clone(), &scope.namespace, &kind.resource)
    };
    let config = watcher::Config::default().labels(&format!("{}={set}", names::PART_OF));
    let task = tokio::spawn(follow(api, config, scope, seen));
    Watch {
        task: task.abort_handle(),
    }
}

async fn follow(api: Api<DynamicObject>, config: watcher::Config, scope: Scope, seen: mpsc::Sender<Seen>) {
    let key = |object: &DynamicObject| Key {
        group: scope.group.clone(),
        kind: scope.kind.clone(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    };
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut events = std::pin::pin!(watcher(api, config));
    let mut there: HashSet<(String, String)> = HashSet::new();
    let mut vanished: HashSet<(String, String)> = HashSet::new();
    while let Some(event) = events.next().await {
        let sent = match event {
            Ok(Event::Init) => {
                vanished = std::mem::take(&mut there);
                Ok(())
            }
            Ok(Event::InitApply(mut object) | Event::Apply(mut object)) => {
                backoff.reset();
                let by = last_writer(&object);
                object.metadata.managed_fields = None;
                let key = key(&object);
                let place = (key.namespace.clone(), key.name.clone());
                vanished.remove(&place);
                there.insert(place);
                let object = Box::new(serde_json::to_value(&object).unwrap_or_default());
                seen.send(Seen::Live { key, object, by }).await
            }
            Ok(Event::Delete(object)) => {
                let key = key(&object);
                there.remove(&(key.namespace.clone(), key.name.clone()));
                seen.send(Seen::Gone(key)).await
            }
            Ok(Event::InitDone) => {
                backoff.reset();
                for (namespace, name) in vanished.drain() {
                    let gone = Key {
                        group: scope.group.clone(),
                        kind: scope.kind.clone(),
                        namespace,
                        name,
                    };
                    if seen.send(Seen::Gone(gone)).await.is_err() {
                        return;
                    }
                }
                seen.send(Seen::Ready(scope.clone())).await
            }
            Err(error) => {
                if let Some(refusal) = refusal(&error) {
                    let _ = seen.send(Seen::Refused(scope.clone(), refusal)).await;
                    return;
                }
                tracing::debug!(kind = %scope.kind, namespace = %scope.namespace, %error, "the watch failed, will try again");
                tokio::time::sleep(backoff.next_delay()).await;
                Ok(())
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The field manager with the newest entry.
fn last_writer(object: &DynamicObject) -> Option<String> {
    let fields = object.metadata.managed_fields.as_ref()?;
    let newest = fields
        .iter()
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    newest.manager.clone()
}

/// What the API server said if it will say so again: the account may not, or the kind is not there.
fn refusal(error: &watcher::Error) -> Option<String> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.clone(),
        _ => return None,
    };
    [401, 403, 404].contains(&status.code).then_some(status.message)
}
