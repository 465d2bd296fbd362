//! Keeps the gate's view of RBAC in step with the cluster.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;
use writ_authz::Kind;

use super::{
    Shared,
    rbac::{Object, Place, Touched},
};

/// Starts one watch per kind of RBAC object, and one on each of the agent's own namespaces.
pub fn start(client: &Client, shared: &Arc<Shared>, own: &BTreeSet<String>) -> Vec<AbortOnDropHandle<()>> {
    const KINDS: usize = 4;
    shared.unlisted.store(KINDS + own.len(), Ordering::SeqCst);
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
    let events = watcher(api, watcher::Config::default()).default_backoff();
    pin_mut!(events);
    let mut known: BTreeSet<Place> = BTreeSet::new();
    let mut listed: BTreeSet<Place> = BTreeSet::new();
    let mut first = true;
    while let Some(event) = events.next().await {
        let (touched, place) = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                let object: Object = object.into();
                listed.insert(object.place());
                (put(shared, &object), Some(object.place()))
            }
            Ok(watcher::Event::Apply(object)) => {
                let object: Object = object.into();
                known.insert(object.place());
                (put(shared, &object), Some(object.place()))
            }
            Ok(watcher::Event::InitDone) => {
                let touched = shared
                    .rbac
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .retain(kind, &listed, &known);
                known = std::mem::take(&mut listed);
                if std::mem::take(&mut first) {
                    shared.listed();
                }
                (touched, None)
            }
            Ok(watcher::Event::Delete(object)) => {
                let place = object.into().place();
                known.remove(&place);
                let touched = shared
                    .rbac
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&place);
                (touched, Some(place))
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "watch on RBAC interrupted, will try again");
                // Changes may go unseen until it works again: nothing that was answered counts any more.
                shared.doubt();
                continue;
            }
        };
        shared.touched(&touched, place.as_ref());
    }
}

/// Keeps the labels of the agent's own namespace: selectors may select it by them.
async fn follow_own(api: Api<Namespace>, shared: Arc<Shared>, own: String) {
    let config = watcher::Config::default().fields(&format!("metadata.name={own}"));
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut first = true;
    while let Some(event) = events.next().await {
        let labels = match event {
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                object.metadata.labels.unwrap_or_default()
            }
            Ok(watcher::Event::InitDone) => {
                if std::mem::take(&mut first) {
                    shared.listed();
                }
                continue;
            }
            Ok(watcher::Event::Init | watcher::Event::Delete(_)) => continue,
            Err(error) => {
                tracing::warn!(%error, "watch on the agent's namespace interrupted, will try again");
                continue;
            }
        };
        let mut rbac = shared.rbac.write().unwrap_or_else(PoisonError::into_inner);
        let changed = rbac.set_own_labels(&own, labels);
        drop(rbac);
        if changed {
            shared.look_again();
        }
    }
}

fn put(shared: &Shared, object: &Object) -> Touched {
    shared
        .rbac
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .put(object)
}
