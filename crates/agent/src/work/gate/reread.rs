//! Whether somebody holds what he grants is decided by what the watches showed, and they may lag. So what decides about a
//! revision is read once more after it arrived: a permission that was gone before is not used.

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

use super::{
    CONCURRENCY, Gate,
    rbac::{Object, Place},
};
use crate::work::Key;

impl Gate {
    /// Whether all that decides about a work of this executor is as the watches showed it. What is not is taken in.
    pub(super) async fn confirm(
        &self,
        key: &Key,
        account: &ExecutorServiceAccount,
        since: Instant,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        let rbac = self.shared.rbac();
        let mut places = rbac.rights_of(account);
        {
            let known = self.shared.known();
            let Some(known) = known.get(account) else {
                return Ok(true);
            };
            let work = known.works.get(key);
            if work
                .and_then(|work| work.confirmed)
                .is_some_and(|read| read >= since)
            {
                return Ok(true);
            }
            places.extend(work.into_iter().flat_map(|work| work.places.iter().cloned()));
            // Of a grant that binds Roles nobody knows the namespaces; the right to bind them is asked for.
            places.retain(|(kind, namespace, _)| *kind != Kind::Role || !namespace.is_empty());
        }
        let reads: Vec<_> = places
            .into_iter()
            .map(|place| async {
                let live = read(&self.client, &place).await?;
                Ok::<_, Error>((place, live))
            })
            .collect();
        let read: Vec<_> = stream::iter(reads)
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;
        let mut same = true;
        for (place, live) in read {
            if rbac.shows(&place, live.as_ref()) {
                continue;
            }
            same = false;
            let touched = self.shared.change(|rbac| match &live {
                Some(object) => rbac.put(object),
                None => rbac.remove(&place),
            });
            self.shared.touched(&touched, Some(&place));
        }
        if same
            && let Some(known) = self.shared.known().get_mut(account)
            && let Some(work) = known.works.get_mut(key)
        {
            work.confirmed = Some(began);
        }
        Ok(same)
    }
}

async fn read(client: &Client, place: &Place) -> Result<Option<Object>, Error> {
    match place.0 {
        Kind::Role => get(namespaced::<Role>(client, place), place).await,
        Kind::RoleBinding => get(namespaced::<RoleBinding>(client, place), place).await,
        Kind::ClusterRole => get(Api::<ClusterRole>::all(client.clone()), place).await,
        Kind::ClusterRoleBinding => get(Api::<ClusterRoleBinding>::all(client.clone()), place).await,
    }
}

fn namespaced<K>(client: &Client, (_, namespace, _): &Place) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

async fn get<K>(api: Api<K>, (kind, _, name): &Place) -> Result<Option<Object>, Error>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Into<Object>,
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
    use crate::{Options, work::executor::Work};

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
    async fn a_right_that_is_gone_unseen_is_not_used() {
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
        let gate = Gate::new(client(&role), &Options::default(), Queue::default());
        let account = ExecutorServiceAccount {
            namespace: "shop".into(),
            name: "a".into(),
        };
        let key = Key::work("w");
        gate.shared.change(|rbac| {
            rbac.put(&role.clone().into());
            rbac.put(&binding.into())
        });
        let work = Work {
            places: HashSet::from([(Kind::Role, String::new(), "of-a-grant".into())]),
            ..Work::default()
        };
        let mut known = super::super::Known::default();
        known.works.insert(key.clone(), work);
        gate.shared.known().insert(account.clone(), known);
        let since = Instant::now();
        let before = gate.epochs(&account, &key);
        assert!(
            !gate.confirm(&key, &account, since).await.unwrap(),
            "the binding is gone"
        );
        assert_ne!(gate.epochs(&account, &key), before, "it is judged again");
        assert!(gate.shared.rbac().rights_of(&account).is_empty());
        assert!(gate.confirm(&key, &account, since).await.unwrap());
    }
}
