//! One watch on the objects of a sync: those of one kind, in one namespace or in all.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};
use tokio::{sync::mpsc, task::AbortHandle};
use writ_controller::{Name, ObjectId, ServedKind, backoff::Backoff};

use super::model::{Scope, Seen};
use crate::names;

/// The number of consecutive failures that are reported. A watch that ends now and then is normal.
const REPORTED_FAILURES: u32 = 3;

/// A running watch. It ends when this value is dropped.
pub struct Watch {
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a watch on the objects with the label of the sync.
pub fn start(client: &Client, kind: &ServedKind, scope: Scope, set: &str, seen: mpsc::Sender<Seen>) -> Watch {
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
    let (group, kind): (Arc<str>, Arc<str>) = (scope.group.as_str().into(), scope.kind.as_str().into());
    let id = |name: Name| ObjectId {
        group: group.clone(),
        kind: kind.clone(),
        name,
    };
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut events = watcher(api.clone(), config.clone()).boxed();
    let mut present: HashSet<Name> = HashSet::new();
    // Objects of the list before that the running list has not shown yet.
    let mut vanished: HashSet<Name> = HashSet::new();
    let mut failures = 0;
    while let Some(event) = events.next().await {
        let sent = match event {
            Ok(Event::Init) => {
                vanished = std::mem::take(&mut present);
                Ok(())
            }
            Ok(Event::InitApply(mut object) | Event::Apply(mut object)) => {
                backoff.reset();
                let by = last_writer(&object);
                object.metadata.managed_fields = None;
                let name = Name::of(&object);
                vanished.remove(&name);
                present.insert(name.clone());
                let object = Box::new(serde_json::to_value(&object).unwrap_or_default());
                let id = id(name);
                seen.send(Seen::Live { id, object, by }).await
            }
            Ok(Event::Delete(object)) => {
                let name = Name::of(&object);
                present.remove(&name);
                seen.send(Seen::Gone(id(name))).await
            }
            Ok(Event::InitDone) => {
                backoff.reset();
                failures = 0;
                for name in vanished.drain() {
                    if seen.send(Seen::Gone(id(name))).await.is_err() {
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
                if failures == REPORTED_FAILURES {
                    let failing = Seen::Failing(scope.clone(), error.to_string());
                    if seen.send(failing).await.is_err() {
                        return;
                    }
                    // A new watch begins with a list, whose end shows that the watch works again.
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

/// The field manager of the newest entry.
fn last_writer(object: &DynamicObject) -> Option<String> {
    let fields = object.metadata.managed_fields.as_ref()?;
    let newest = fields
        .iter()
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    newest.manager.clone()
}

/// The message of the API server if a retry would get the same answer: the account lacks the right, or the kind is gone.
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::{client::Body, core::ApiResource};
    use serde_json::json;

    use super::*;

    /// An API server that fails that many requests, and then has no objects.
    fn failing_at_first(failures: u32) -> Client {
        let asked = Arc::new(AtomicU32::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let refused = asked.fetch_add(1, Ordering::SeqCst) < failures;
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
    async fn watch_that_keeps_failing_is_reported_and_so_is_its_recovery() {
        let kind = ServedKind {
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
        for (failures, reported) in [(1, false), (REPORTED_FAILURES + 1, true)] {
            let (sender, mut seen) = mpsc::channel(8);
            let _watch = start(&failing_at_first(failures), &kind, scope.clone(), "set", sender);
            if reported {
                let first = seen.recv().await;
                assert!(
                    matches!(first, Some(Seen::Failing(at, said)) if at == scope && said.contains("not now"))
                );
            }
            assert!(matches!(seen.recv().await, Some(Seen::Ready(at)) if at == scope));
        }
    }
}
