//! Writes the objects of a sync: what differs, and nothing else.

use std::fmt::Debug;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};
use serde::{Serialize, de::DeserializeOwned};
use writ_api::kpt::ResourceGroup;
use writ_controller::{
    Error,
    error::Context as _,
    write::{self, Outcome},
};

use super::{
    config_sync_bindings,
    observe::Stores,
    plan::{self, Plan, PlannedRole},
};
use crate::{
    FIELD_MANAGER,
    model::{SYSTEM_NAMESPACE, SyncId, SyncKind},
    names,
};

/// The most characters of a label's value.
const MAX_LABEL: usize = 63;

/// What happened to the bindings of one pass.
#[derive(Default)]
pub struct Bound {
    /// For each planned role, why it could not be bound.
    pub failures: Vec<Option<String>>,
    /// Whether any right was given or taken.
    pub changed: bool,
    /// The first failure that another pass may cure.
    pub error: Option<Error>,
}

/// Makes the account, the base rights and the inventory.
pub async fn ensure_base(client: &Client, stores: &Stores, id: &SyncId, plan: &Plan) -> Result<bool, Error> {
    let system = |name: &str| ObjectRef::new(name).within(SYSTEM_NAMESPACE);
    let account = ensure(
        &Api::namespaced(client.clone(), SYSTEM_NAMESPACE),
        stores.accounts.get(&system(&plan.account.name_any())).as_deref(),
        &plan.account,
        |_| false,
    )
    .await?;
    let role = ensure(
        &Api::namespaced(client.clone(), &id.namespace),
        stores
            .roles
            .get(&ObjectRef::new(&names::base(id)).within(&id.namespace))
            .as_deref(),
        &plan.base_role,
        |_| false,
    )
    .await?;
    let wanted = &plan.base_binding;
    let binding = ensure(
        &Api::namespaced(client.clone(), &id.namespace),
        stores
            .role_bindings
            .get(&ObjectRef::new(&names::base(id)).within(&id.namespace))
            .as_deref(),
        wanted,
        |have: &RoleBinding| have.role_ref != wanted.role_ref,
    )
    .await?;
    ensure(
        &Api::<ResourceGroup>::namespaced(client.clone(), &id.namespace),
        stores.inventory(id).as_deref(),
        &plan.inventory,
        |_| false,
    )
    .await?;
    Ok([account, role, binding].iter().any(|o| *o != Outcome::Unchanged))
}

/// Grants first, revokes last. A role that cannot be bound stops neither the others nor the revocation.
pub async fn ensure_bindings(client: &Client, stores: &Stores, id: &SyncId, plan: &Plan) -> Bound {
    let mut bound = Bound::default();
    for role in &plan.roles {
        let failure = if role.wanted() {
            match bind(client, stores, id, role).await {
                Ok(outcome) => {
                    bound.changed |= outcome != Outcome::Unchanged;
                    None
                }
                Err(error) => {
                    let text = error.to_string();
                    bound.error.get_or_insert(error);
                    Some(text)
                }
            }
        } else {
            None
        };
        bound.failures.push(failure);
    }
    for revoked in [
        revoke(client, stores, id, plan).await,
        stores.legacy.revoke(client, id).await,
    ] {
        match revoked {
            Ok(changed) => bound.changed |= changed,
            Err(error) => bound.error = Some(error),
        }
    }
    bound
}

async fn bind(client: &Client, stores: &Stores, id: &SyncId, role: &PlannedRole) -> Result<Outcome, Error> {
    let role_ref = plan::role_ref(role.role.kind.as_str(), role.role.name.clone());
    let subjects = Some(vec![plan::subject(id)]);
    let namespace = role.role.namespace.as_deref().unwrap_or_default();
    let metadata = plan::metadata(id, namespace, role.binding.clone());
    if namespace.is_empty() {
        let wanted = ClusterRoleBinding {
            metadata,
            role_ref,
            subjects,
        };
        let current = stores.cluster_role_bindings.get(&ObjectRef::new(&role.binding));
        let replace = |have: &ClusterRoleBinding| have.role_ref != wanted.role_ref;
        ensure(&Api::all(client.clone()), current.as_deref(), &wanted, replace).await
    } else {
        let wanted = RoleBinding {
            metadata,
            role_ref,
            subjects,
        };
        let current = stores
            .role_bindings
            .get(&ObjectRef::new(&role.binding).within(namespace));
        let replace = |have: &RoleBinding| have.role_ref != wanted.role_ref;
        let api = Api::namespaced(client.clone(), namespace);
        ensure(&api, current.as_deref(), &wanted, replace).await
    }
}

/// Removes every binding made for the sync that it does not ask for.
async fn revoke(client: &Client, stores: &Stores, id: &SyncId, plan: &Plan) -> Result<bool, Error> {
    let wanted = |namespace: Option<String>, name: String| {
        (namespace.as_deref() == Some(&*id.namespace) && name == names::base(id))
            || plan
                .roles
                .iter()
                .any(|role| role.wanted() && role.binding == name && role.role.namespace == namespace)
    };
    let ours =
        |labels: &std::collections::BTreeMap<String, String>| names::id_of(labels).as_ref() == Some(id);
    let mut changed = false;
    let mut failure = None;
    let mut note = |revoked: Result<bool, Error>| match revoked {
        Ok(gone) => changed |= gone,
        Err(error) => failure = Some(error),
    };
    for binding in stores.cluster_role_bindings.state() {
        if ours(binding.labels()) && !wanted(None, binding.name_any()) {
            note(unbind(&Api::<ClusterRoleBinding>::all(client.clone()), id, &binding).await);
        }
    }
    for binding in stores.role_bindings.state() {
        let namespace = binding.namespace();
        if ours(binding.labels()) && !wanted(namespace.clone(), binding.name_any()) {
            let api = Api::<RoleBinding>::namespaced(client.clone(), &namespace.unwrap_or_default());
            note(unbind(&api, id, &binding).await);
        }
    }
    failure.map_or(Ok(changed), Err)
}

/// Takes the rights away that a binding with the labels of a sync gives to its account; returns whether it did.
///
/// Everybody can write labels: a binding that is not called like ours goes only if it is for that account alone. Those
/// of a RepoSync's account are the tenant's own, copied from ours as they may be.
async fn unbind<K>(api: &Api<K>, id: &SyncId, binding: &K) -> Result<bool, Error>
where
    K: config_sync_bindings::Shared + Debug + Serialize + DeserializeOwned,
{
    let name = binding.name_any();
    if names::is_binding(id, &name) {
        write::delete(api, &name, binding.uid().as_deref()).await?;
        return Ok(true);
    }
    match id.kind {
        SyncKind::Root => config_sync_bindings::without(api, &mut binding.clone(), &plan::subject(id)).await,
        SyncKind::Repo => Ok(false),
    }
}

/// Removes everything made for a sync: what runs, then rights, then the account, then the inventory.
///
/// The objects are listed from the API server, not from a copy: what was made a moment ago goes too. What only has the
/// labels stays, as everybody can write these.
pub async fn remove_all(client: &Client, id: &SyncId) -> Result<(), Error> {
    if id.name.len() > MAX_LABEL {
        // Nothing can have been made for it, and the API server would refuse to look.
        return Ok(());
    }
    let all = client.clone();
    let account = names::reconciler(id);
    let list = ListParams::default().labels(&names::selector(id));
    let system = || (SYSTEM_NAMESPACE, account.as_str());
    remove::<Deployment>(client, id, system()).await?;
    for binding in found(&Api::<ClusterRoleBinding>::all(all.clone()), id, &list).await? {
        unbind(&Api::all(all.clone()), id, &binding).await?;
    }
    for binding in found(&Api::<RoleBinding>::all(all.clone()), id, &list).await? {
        let namespace = binding.namespace().unwrap_or_default();
        unbind(&Api::namespaced(all.clone(), &namespace), id, &binding).await?;
    }
    remove::<Role>(client, id, (&id.namespace, &names::base(id))).await?;
    remove::<ServiceAccount>(client, id, system()).await?;
    remove::<ResourceGroup>(client, id, (&id.namespace, &id.name)).await
}

async fn found<K>(api: &Api<K>, id: &SyncId, list: &ListParams) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let found = api.list(list).await;
    Ok(found.context(|| format!("list every {kind} of {id}"))?.items)
}

/// Removes the object of that namespace and name if it has the labels of the sync.
async fn remove<K>(client: &Client, id: &SyncId, (namespace, name): (&str, &str)) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let list = ListParams::default()
        .labels(&names::selector(id))
        .fields(&format!("metadata.name={name}"));
    for object in found(&api, id, &list).await? {
        write::delete(&api, name, object.uid().as_deref()).await?;
    }
    Ok(())
}

/// Makes an object as wanted. One that must be replaced is deleted first, as a binding's role cannot change.
pub async fn ensure<K>(
    api: &Api<K>,
    current: Option<&K>,
    wanted: &K,
    replace: impl Fn(&K) -> bool,
) -> Result<Outcome, Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let name = wanted.name_any();
    let mut live = None;
    for _ in 0..3 {
        let seen = live.as_ref().or(current);
        let attempt = match seen {
            Some(have) if replace(have) => {
                write::delete(api, &name, have.uid().as_deref()).await?;
                write::ensure(api, None, wanted, FIELD_MANAGER).await
            }
            seen => write::ensure(api, seen, wanted, FIELD_MANAGER).await,
        };
        match attempt {
            // Our copy is old: somebody made, removed or replaced it in between.
            Err(error) if error.is_code(409) || error.is_code(404) => {
                let kind = K::kind(&K::DynamicType::default()).into_owned();
                live = api
                    .get_opt(&name)
                    .await
                    .context(|| format!("read {kind} {name}"))?;
                if live.is_none() {
                    let made = write::ensure(api, None, wanted, FIELD_MANAGER).await;
                    if !made.as_ref().is_err_and(|error| error.is_code(409)) {
                        return made;
                    }
                }
            }
            done => return done,
        }
    }
    Err(Error::Invalid(format!(
        "{name} is changed by somebody else all the time"
    )))
}
