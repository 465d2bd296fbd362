//! Keeps the gate's RBAC index in step with the cluster, by the shared caches of RBAC objects.
//!
//! After an error changes may have gone unseen: RBAC is not known until all is listed again, and no answer counts. So these
//! caches list again after every outage, even where a watch could resume: no event would show that it did.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use writ_authz::Kind;
use writ_controller::{
    Cache, Watch,
    cache::{Event, Subscription},
};

use super::{answers::GateState, rbac_index::RbacObject};
use crate::Caches;

/// Follows the RBAC objects of each kind.
pub fn watch_kinds(caches: &Caches, state: &Arc<GateState>) -> [Subscription; 4] {
    [
        watch_kind(caches.roles(), state, Kind::Role),
        watch_kind(caches.cluster_roles(), state, Kind::ClusterRole),
        watch_kind(caches.role_bindings(), state, Kind::RoleBinding),
        watch_kind(caches.cluster_role_bindings(), state, Kind::ClusterRoleBinding),
    ]
}

fn watch_kind<K>(cache: &Cache<K>, state: &Arc<GateState>, kind: Kind) -> Subscription
where
    K: Clone + Into<RbacObject> + Send + Sync + 'static,
{
    let (state, listing) = (state.clone(), Listing::expected(state));
    cache.subscribe(move |event| match event {
        Event::Changed(change) => {
            let id = (
                kind,
                change.name.namespace.to_string(),
                change.name.name.to_string(),
            );
            let affected = state.change_rbac(|rbac| match &change.new {
                Some(object) => rbac.put(&(**object).clone().into()),
                // An object that does not parse grants nothing, whatever it granted before.
                None => rbac.remove(&id),
            });
            state.invalidate(&affected, Some(&id));
        }
        Event::Listed => listing.complete(),
        Event::Interrupted => listing.interrupt(),
    })
}

/// Follows the labels of one of the agent's own namespaces: selectors may select it by them.
pub fn watch_own_namespace(
    client: &Client,
    shutdown: &CancellationToken,
    state: &Arc<GateState>,
    own: &str,
) -> Subscription {
    let cache = Watch::new(Api::all(client.clone()))
        .fields(&format!("metadata.name={own}"))
        .relist_after_outage()
        .keep(|namespace: Namespace| namespace.metadata.labels.unwrap_or_default())
        .start(shutdown);
    let (state, listing, own) = (state.clone(), Listing::expected(state), own.to_owned());
    cache.subscribe(move |event| match event {
        Event::Changed(change) => {
            let Some(labels) = &change.new else { return };
            if state.change_rbac(|rbac| rbac.set_own_labels(&own, (**labels).clone())) {
                state.judge_all_again();
            }
        }
        Event::Listed => listing.complete(),
        Event::Interrupted => listing.interrupt(),
    })
}

/// Whether the list of one cache is awaited.
struct Listing {
    state: Arc<GateState>,
    is_pending: AtomicBool,
}

impl Listing {
    /// The first list is awaited.
    fn expected(state: &Arc<GateState>) -> Self {
        state.expect_list();
        Self {
            state: state.clone(),
            is_pending: AtomicBool::new(true),
        }
    }

    fn complete(&self) {
        if self.is_pending.swap(false, Ordering::SeqCst) {
            self.state.list_completed();
        }
    }

    fn interrupt(&self) {
        if !self.is_pending.swap(true, Ordering::SeqCst) {
            self.state.expect_list();
        }
        self.state.invalidate_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, time::Duration};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::Notify;
    use writ_authz::Key;
    use writ_controller::Queue;

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
        let caches = Caches::new(Client::new(server, "default"), CancellationToken::new());
        let _watch = watch_kind(caches.roles(), &state, Kind::Role);
        let has = |name: &str| {
            let rbac = state.rbac();
            rbac.index().role_rules(Key::new(Kind::Role, "n", name)).is_some()
        };
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
