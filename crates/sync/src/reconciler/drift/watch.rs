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
use writ_controller::backoff::Backoff;

use crate::{
    names,
    reconciler::{object::Key, rest_mapper::Kind},
};

/// So many failures in a row are told.
const MANY: u32 = 3;

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
    /// The watch fails again and again, with what was said last.
    Failing(Scope, String),
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
    let mut events = watcher(api.clone(), config.clone()).boxed();
    let mut there: HashSet<(String, String)> = HashSet::new();
    let mut vanished: HashSet<(String, String)> = HashSet::new();
    let mut failures = 0;
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
                failures = 0;
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
                failures += 1;
                // A watch that ends now and then is nothing to tell.
                if failures == MANY {
                    let failing = Seen::Failing(scope.clone(), error.to_string());
                    if seen.send(failing).await.is_err() {
                        return;
                    }
                    // From the beginning: only a new list tells that it works again.
                    events = watcher(api.clone(), config.clone()).boxed();
                }
                tokio::time::sleep(backoff.next_delay()).await;
                Ok(())
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Whether a version is older than one that is known. Where they are no numbers, nobody can tell.
pub fn older(seen: &str, known: &str) -> bool {
    matches!((seen.parse::<u64>(), known.parse::<u64>()), (Ok(seen), Ok(known)) if seen < known)
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

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use http::{Request, Response};
    use kube::{client::Body, core::ApiResource};
    use serde_json::json;

    use super::*;

    /// Refuses that many requests, then has nothing to show.
    fn unhealthy(refusals: u32) -> Client {
        let asked = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let refused = asked.fetch_add(1, Ordering::SeqCst) < refusals;
            async move {
                if !refused
                    && request
                        .uri()
                        .query()
                        .is_some_and(|query| query.contains("watch=true"))
                {
                    std::future::pending::<()>().await;
                }
                let (code, body) = if refused {
                    (
                        503,
                        json!({ "kind": "Status", "status": "Failure", "message": "not now", "reason": "", "code": 503 }),
                    )
                } else {
                    (
                        200,
                        json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] }),
                    )
                };
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(body.to_string().into_bytes()));
                answer.map_err(std::io::Error::other)
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_watch_that_fails_again_and_again_is_told_and_so_is_its_recovery() {
        let kind = Kind {
            resource: ApiResource {
                group: String::new(),
                version: "v1".into(),
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                plural: "configmaps".into(),
            },
            namespaced: true,
        };
        let scope = Scope {
            group: String::new(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "a".into(),
        };
        for (refusals, told) in [(1, false), (MANY + 1, true)] {
            let (sender, mut seen) = mpsc::channel(8);
            let _watch = start(&unhealthy(refusals), &kind, scope.clone(), "set", sender);
            if told {
                let first = seen.recv().await;
                assert!(
                    matches!(first, Some(Seen::Failing(at, said)) if at == scope && said.contains("not now"))
                );
            }
            assert!(matches!(seen.recv().await, Some(Seen::Ready(at)) if at == scope));
        }
    }
}
