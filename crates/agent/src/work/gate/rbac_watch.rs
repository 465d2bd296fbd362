//! Keeps the gate's view of RBAC in step with the cluster.

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
    Shared,
    rbac::{Object, Place, Touched},
};

/// How soon a watch that failed is started anew.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// And how long it waits at most, once it failed again and again.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Starts one watch per kind of RBAC object, and one on each of the agent's own namespaces.
pub fn start(client: &Client, shared: &Arc<Shared>, own: &BTreeSet<String>) -> Vec<AbortOnDropHandle<()>> {
    const KINDS: usize = 4;
    shared.unknown(KINDS + own.len());
    let namespaces = own.iter().map(|own| {
        let follow = follow_own(Api::all(client.clone()), shared.clone(), own.clone());
        AbortOnDropHandle::new(tokio::spawn(follow))
    });
    let kinds: [_; KINDS] = [
        spawn::<Role>(client, shared, Kind::Role),
        spawn::<ClusterRole>(client, shared, Kind::ClusterRole),
        spawn::<RoleBinding>(client, shared, Kind::RoleBinding),
        spawn::<ClusterRoleBinding>(client, shared, Kind::ClusterRoleBinding),
    ];
    namespaces.chain(kinds).collect()
}

fn spawn<K>(client: &Client, shared: &Arc<Shared>, kind: Kind) -> AbortOnDropHandle<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Into<Object> + Send + 'static,
{
    let (api, shared) = (Api::<K>::all(client.clone()), shared.clone());
    AbortOnDropHandle::new(tokio::spawn(async move { follow(api, &shared, kind).await }))
}

async fn follow<K>(api: Api<K>, shared: &Shared, kind: Kind)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Into<Object> + Send + 'static,
{
    let mut known: BTreeSet<Place> = BTreeSet::new();
    let mut listed: BTreeSet<Place> = BTreeSet::new();
    for_each(api, watcher::Config::default(), shared, |event| {
        let (touched, place) = match event {
            watcher::Event::Init => {
                listed.clear();
                return;
            }
            watcher::Event::InitApply(object) => {
                let object: Object = object.into();
                listed.insert(object.place());
                // It is in the index from here on, also if the listing breaks off.
                known.insert(object.place());
                (put(shared, &object), Some(object.place()))
            }
            watcher::Event::Apply(object) => {
                let object: Object = object.into();
                known.insert(object.place());
                (put(shared, &object), Some(object.place()))
            }
            watcher::Event::InitDone => {
                let touched = shared.change(|rbac| rbac.retain(kind, &listed, &known));
                known = std::mem::take(&mut listed);
                (touched, None)
            }
            watcher::Event::Delete(object) => {
                let place = object.into().place();
                known.remove(&place);
                let touched = shared.change(|rbac| rbac.remove(&place));
                (touched, Some(place))
            }
        };
        shared.touched(&touched, place.as_ref());
    })
    .await;
}

/// Keeps the labels of the agent's own namespace: selectors may select it by them.
async fn follow_own(api: Api<Namespace>, shared: Arc<Shared>, own: String) {
    let config = watcher::Config::default().fields(&format!("metadata.name={own}"));
    for_each(api, config, &shared, |event| {
        let (watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = event else {
            return;
        };
        let labels = object.metadata.labels.unwrap_or_default();
        if shared.change(|rbac| rbac.set_own_labels(&own, labels)) {
            shared.look_again();
        }
    })
    .await;
}

/// Follows a watch for ever. After an error changes may go unseen: from there until all is listed again it is not known
/// what RBAC says, and nothing that was answered counts. So it is listed again, even where the watch could go on: that
/// it does no event would tell. A watch that just ends goes on, and nothing is doubted.
async fn for_each<K>(
    api: Api<K>,
    config: watcher::Config,
    shared: &Shared,
    mut each: impl FnMut(watcher::Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&());
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
    let mut unknown = true;
    loop {
        let events = watcher(api.clone(), config.clone());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    tracing::warn!(%kind, %error, "watch interrupted, will list again");
                    if !std::mem::replace(&mut unknown, true) {
                        shared.unknown(1);
                    }
                    shared.doubt();
                    break;
                }
            };
            let done = matches!(event, watcher::Event::InitDone);
            each(event);
            if done {
                backoff.reset();
                if std::mem::take(&mut unknown) {
                    shared.listed();
                }
            }
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

fn put(shared: &Shared, object: &Object) -> Touched {
    shared.change(|rbac| rbac.put(object))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::{sync::Notify, time::Instant};
    use writ_authz::Key;
    use writ_controller::queue::Queue;

    use super::{super::Unlisted, *};

    /// The answer to a listing: these Roles, and whether there are more.
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
    async fn after_an_error_nothing_is_known_until_all_is_listed_again() {
        let shared = Arc::new(Shared {
            rbac: RwLock::default(),
            known: Mutex::default(),
            queue: Queue::default(),
            unlisted: Mutex::new(Unlisted {
                count: 0,
                since: Instant::now(),
            }),
        });
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
                        // A listing that breaks off, then a whole one, without b; then the watch fails.
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
        shared.unknown(1);
        let has = |name: &str| {
            let rbac = shared.rbac();
            rbac.index().role_rules(Key::new(Kind::Role, "n", name)).is_some()
        };
        let _following = spawn::<Role>(&client, &shared, Kind::Role);
        until(|| asked.load(Ordering::SeqCst) == 5).await;
        assert!(shared.unknown_for().is_some());
        assert!(has("a") && !has("b"), "what was listed in part goes, too");
        go.notify_one();
        until(|| shared.unknown_for().is_none()).await;
        assert!(has("a") && has("c"));
    }
}
