//! Keeps the gate's view of RBAC in step with the cluster.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, PoisonError},
};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
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

/// How many kinds are watched.
pub const KINDS: usize = 4;

/// Starts one watch per kind.
pub fn start(client: &Client, shared: &Arc<Shared>) -> Vec<AbortOnDropHandle<()>> {
    vec![
        spawn::<Role>(client, shared, Kind::Role),
        spawn::<ClusterRole>(client, shared, Kind::ClusterRole),
        spawn::<RoleBinding>(client, shared, Kind::RoleBinding),
        spawn::<ClusterRoleBinding>(client, shared, Kind::ClusterRoleBinding),
    ]
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
        let touched = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                let object: Object = object.into();
                listed.insert(object.place());
                put(shared, &object)
            }
            Ok(watcher::Event::Apply(object)) => {
                let object: Object = object.into();
                known.insert(object.place());
                put(shared, &object)
            }
            Ok(watcher::Event::InitDone) => {
                let touched = shared
                    .rbac
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .retain(kind, &listed, &known);
                known = std::mem::take(&mut listed);
                if first {
                    first = false;
                    shared.listed.send_modify(|listed| *listed += 1);
                }
                touched
            }
            Ok(watcher::Event::Delete(object)) => {
                let place = object.into().place();
                known.remove(&place);
                shared
                    .rbac
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&place)
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "watch on RBAC interrupted, will try again");
                // Changes may go unseen until it works again: nothing that was answered counts any more.
                shared.doubt();
                continue;
            }
        };
        shared.touched(&touched);
    }
}

fn put(shared: &Shared, object: &Object) -> Touched {
    shared
        .rbac
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .put(object)
}
