//! Keeps the gate's RBAC index in step with the cluster, by watches.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;
use writ_authz::Kind;
use writ_controller::backoff::Backoff;

use super::{
    answers::GateState,
    rbac_index::{AffectedSubjects, RbacObject},
};
use crate::work::model::RbacId;

/// How soon a watch that failed is started again.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// The longest pause, after many failures.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Starts one watch per kind of RBAC object, and one on each of the agent's own namespaces.
pub fn start(client: &Client, state: &Arc<GateState>, own: &BTreeSet<String>) -> Vec<AbortOnDropHandle<()>> {
    const KINDS: usize = 4;
    state.expect_lists(KINDS + own.len());
    let namespaces = own.iter().map(|own| {
        let watch = watch_own_namespace(Api::all(client.clone()), state.clone(), own.clone());
        AbortOnDropHandle::new(tokio::spawn(watch))
    });
    let kinds: [_; KINDS] = [
        spawn::<Role>(client, state, Kind::Role),
        spawn::<ClusterRole>(client, state, Kind::ClusterRole),
        spawn::<RoleBinding>(client, state, Kind::RoleBinding),
        spawn::<ClusterRoleBinding>(client, state, Kind::ClusterRoleBinding),
    ];
    namespaces.chain(kinds).collect()
}

fn spawn<K>(client: &Client, state: &Arc<GateState>, kind: Kind) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Into<RbacObject> + Send + 'static,
{
    let (api, state) = (Api::<K>::all(client.clone()), state.clone());
    AbortOnDropHandle::new(tokio::spawn(async move { watch_kind(api, &state, kind).await }))
}

async fn watch_kind<K>(api: Api<K>, state: &GateState, kind: Kind)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Into<RbacObject> + Send + 'static,
{
    let mut known: BTreeSet<RbacId> = BTreeSet::new();
    let mut listed: BTreeSet<RbacId> = BTreeSet::new();
    for_each_event(api, watcher::Config::default(), state, |event| {
        let (affected, id) = match event {
            watcher::Event::Init => {
                listed.clear();
                return;
            }
            watcher::Event::InitApply(object) => {
                let object: RbacObject = object.into();
                listed.insert(object.id());
                // It is in the index from here on, also if the list is interrupted.
                known.insert(object.id());
                (put(state, &object), Some(object.id()))
            }
            watcher::Event::Apply(object) => {
                let object: RbacObject = object.into();
                known.insert(object.id());
                (put(state, &object), Some(object.id()))
            }
            watcher::Event::InitDone => {
                let affected = state.change_rbac(|rbac| rbac.retain(kind, &listed, &known));
                known = std::mem::take(&mut listed);
                (affected, None)
            }
            watcher::Event::Delete(object) => {
                let id = object.into().id();
                known.remove(&id);
                let affected = state.change_rbac(|rbac| rbac.remove(&id));
                (affected, Some(id))
            }
        };
        state.invalidate(&affected, id.as_ref());
    })
    .await;
}

/// Keeps the labels of one of the agent's own namespaces: selectors may select it by them.
async fn watch_own_namespace(api: Api<Namespace>, state: Arc<GateState>, own: String) {
    let config = watcher::Config::default().fields(&format!("metadata.name={own}"));
    for_each_event(api, config, &state, |event| {
        let (watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = event else {
            return;
        };
        let labels = object.metadata.labels.unwrap_or_default();
        if state.change_rbac(|rbac| rbac.set_own_labels(&own, labels)) {
            state.judge_all_again();
        }
    })
    .await;
}

/// Watches until it is dropped. After an error changes may have gone unseen: RBAC is not known until all is listed again, and
/// no answer counts. The list is repeated even where the watch could resume, because no event would show that it
/// did. A watch that ends without an error resumes, and nothing is dropped.
async fn for_each_event<K>(
    api: Api<K>,
    config: watcher::Config,
    state: &GateState,
    mut take: impl FnMut(watcher::Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&());
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
    let mut is_unknown = true;
    loop {
        let events = watcher(api.clone(), config.clone());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    tracing::warn!(%kind, %error, "watch interrupted, will list again");
                    if !std::mem::replace(&mut is_unknown, true) {
                        state.expect_lists(1);
                    }
                    state.invalidate_all();
                    break;
                }
            };
            let is_listed = matches!(event, watcher::Event::InitDone);
            take(event);
            if is_listed {
                backoff.reset();
                if std::mem::take(&mut is_unknown) {
                    state.list_completed();
                }
            }
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

fn put(state: &GateState, object: &RbacObject) -> AffectedSubjects {
    state.change_rbac(|rbac| rbac.put(object))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::Notify;
    use writ_authz::Key;
    use writ_controller::queue::Queue;

    use super::*;

    /// The answer to a list request: these Roles, and whether there are more.
    fn list(names: &[&str], more: &str) -> (u16, Value) {
        let items: Vec<Value> = names
            .iter()
            .map(|name| json!({"metadata": {"name": name, "namespace": "n"}, "rules": []}))
            .collect();
        let metadata = json!({"resourceVersion": "1", "continue": more});
        (
            200,
            json!({"kind": "RoleList", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata, "items": items}),
        )
    }

    async fn until(mut holds: impl FnMut() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    }

    #[tokio::test]
    async fn rbac_is_unknown_after_an_error_until_all_is_listed_again() {
        let state = Arc::new(GateState::new(Queue::default()));
        let (asked, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let server = {
            let (asked, go) = (asked.clone(), go.clone());
            tower::service_fn(move |_: Request<Body>| {
                let (number, go) = (asked.fetch_add(1, Ordering::SeqCst), go.clone());
                async move {
                    let broken = (
                        500,
                        json!({"kind": "Status", "status": "Failure", "code": 500, "message": "", "reason": ""}),
                    );
                    let (code, body) = match number {
                        // A list that is interrupted, then a whole one, without b; then the watch fails.
                        0 => list(&["a", "b"], "more"),
                        2 => list(&["a"], ""),
                        1 | 3 => broken,
                        4 => {
                            go.notified().await;
                            list(&["a", "c"], "")
                        }
                        _ => std::future::pending().await,
                    };
                    let response = Response::builder().status(code);
                    response.body(Body::from(body.to_string().into_bytes()))
                }
            })
        };
        let client = Client::new(server, "default");
        state.expect_lists(1);
        let has = |name: &str| {
            let rbac = state.rbac();
            rbac.index().role_rules(Key::new(Kind::Role, "n", name)).is_some()
        };
        let _watch = spawn::<Role>(&client, &state, Kind::Role);
        until(|| asked.load(Ordering::SeqCst) == 5).await;
        assert!(state.unknown_for().is_some());
        assert!(
            has("a") && !has("b"),
            "objects of the interrupted list are removed too"
        );
        go.notify_one();
        until(|| state.unknown_for().is_none()).await;
        assert!(has("a") && has("c"));
    }
}
