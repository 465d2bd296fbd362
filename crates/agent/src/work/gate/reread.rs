//! Reads the RBAC objects that a verdict rests on once more from the API server, after the revision arrived.
//!
//! The watches may lag: a right that was revoked before the revision arrived must not be used for it.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use writ_api::work::ExecutorServiceAccount;
use writ_authz::Kind;
use writ_controller::{Error, error::Context as _};

use super::{access_review::CONCURRENCY, answers::GateState, rbac_index::RbacObject};
use crate::work::model::{Key, RbacId};

/// Whether everything that decides about a work of this executor is as the watches showed it. Differences are taken into
/// the index.
pub async fn confirm(
    client: &Client,
    state: &GateState,
    key: &Key,
    account: &ExecutorServiceAccount,
    since: Instant,
) -> Result<bool, Error> {
    let began = Instant::now();
    let rbac = state.rbac();
    let mut ids = rbac.rights_of(account);
    {
        let executors = state.executors();
        let Some(executor) = executors.get(account) else {
            return Ok(true);
        };
        let work = executor.works.get(key);
        if work
            .and_then(|work| work.confirmed)
            .is_some_and(|read| read >= since)
        {
            return Ok(true);
        }
        ids.extend(work.into_iter().flat_map(|work| work.roles.iter().cloned()));
        // The Roles that a grant binds are in namespaces that are not known here; the right to bind them is asked for.
        ids.retain(|(kind, namespace, _)| *kind != Kind::Role || !namespace.is_empty());
    }
    let reads: Vec<_> = ids
        .into_iter()
        .map(|id| async {
            let live = read(client, &id).await?;
            Ok::<_, Error>((id, live))
        })
        .collect();
    let read: Vec<_> = stream::iter(reads)
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await?;
    let mut agrees = true;
    for (id, live) in read {
        if rbac.agrees_with(&id, live.as_ref()) {
            continue;
        }
        agrees = false;
        let affected = state.change_rbac(|rbac| match &live {
            Some(object) => rbac.put(object),
            None => rbac.remove(&id),
        });
        state.invalidate(&affected, Some(&id));
    }
    if agrees
        && let Some(executor) = state.executors().get_mut(account)
        && let Some(work) = executor.works.get_mut(key)
    {
        work.confirmed = Some(began);
    }
    Ok(agrees)
}

async fn read(client: &Client, id: &RbacId) -> Result<Option<RbacObject>, Error> {
    match id.0 {
        Kind::Role => get(namespaced::<Role>(client, id), id).await,
        Kind::RoleBinding => get(namespaced::<RoleBinding>(client, id), id).await,
        Kind::ClusterRole => get(Api::<ClusterRole>::all(client.clone()), id).await,
        Kind::ClusterRoleBinding => get(Api::<ClusterRoleBinding>::all(client.clone()), id).await,
    }
}

fn namespaced<K>(client: &Client, (_, namespace, _): &RbacId) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

async fn get<K>(api: Api<K>, (kind, _, name): &RbacId) -> Result<Option<RbacObject>, Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Into<RbacObject>,
{
    let found = api.get_opt(name).await;
    Ok(found
        .context(|| format!("read {kind:?} {name}, which an executor's rights rest on"))?
        .map(Into::into))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, convert::Infallible};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use writ_controller::queue::Queue;

    use super::*;

    /// A server on which nothing is left of what the watches showed, but the role.
    fn client(role: &Role) -> Client {
        let role = serde_json::to_string(role).unwrap();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = if request.uri().path().ends_with("/roles/r") {
                (200, role.clone())
            } else {
                (404, json!({"kind": "Status", "status": "Failure", "code": 404, "message": "", "reason": "NotFound"}).to_string())
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(body.into_bytes()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn right_revoked_unseen_is_not_used() {
        let role: Role = serde_json::from_value(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "r", "namespace": "shop"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        )
        .unwrap();
        let binding: RoleBinding =
            serde_json::from_value(json!({"metadata": {"name": "b", "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "shop"}]}))
            .unwrap();
        let (client, state) = (client(&role), GateState::new(Queue::default()));
        let account = ExecutorServiceAccount {
            namespace: "shop".into(),
            name: "a".into(),
        };
        let key = Key::work("w");
        state.change_rbac(|rbac| {
            rbac.put(&role.clone().into());
            rbac.put(&binding.into())
        });
        let of_a_grant = (Kind::Role, String::new(), "of-a-grant".into());
        state.remember(&account, &key, HashSet::from([of_a_grant]));
        let since = Instant::now();
        let before = state.epochs(&account, &key);
        let agrees = confirm(&client, &state, &key, &account, since).await.unwrap();
        assert!(!agrees, "the binding is gone");
        assert_ne!(state.epochs(&account, &key), before, "it is judged again");
        assert!(state.rbac().rights_of(&account).is_empty());
        assert!(confirm(&client, &state, &key, &account, since).await.unwrap());
    }
}
