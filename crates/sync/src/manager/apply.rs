//! Writes the objects of a sync: its account, its base rights, its bindings and its inventory.

use std::fmt::Debug;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use writ_api::kpt::ResourceGroup;
use writ_controller::{
    Error, Name,
    error::Context as _,
    write::{self, Ensure, Outcome},
};

use super::{
    config_sync_bindings,
    model::{Binding, Bound, bindings_of},
    observe::Caches,
    plan::{self, Plan, PlannedRole},
};
use crate::{
    FIELD_MANAGER,
    model::{SYSTEM_NAMESPACE, Sync, SyncId, SyncKind},
    names,
};

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// Makes an object as wanted. An object of this name that another writer has made is taken over, and one that `must_recreate`
/// is deleted and created again.
pub async fn ensure<K>(
    api: &Api<K>,
    current: Option<&K>,
    wanted: &K,
    must_recreate: &(dyn Fn(&K) -> bool + std::marker::Sync),
) -> Result<Outcome, Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    Ensure::new(api, FIELD_MANAGER)
        .adopt(&|_| true)
        .recreate_if(must_recreate)
        .run(current, wanted)
        .await
}

/// Makes the account, the base rights and the inventory. Returns true if a right was granted.
pub async fn ensure_base(client: &Client, caches: &Caches, id: &SyncId, plan: &Plan) -> Result<bool, Error> {
    let system = Name::new(SYSTEM_NAMESPACE, names::reconciler(id));
    let base = Name::new(id.namespace.clone(), names::base(id));
    let account = ensure(
        &Api::namespaced(client.clone(), SYSTEM_NAMESPACE),
        caches.accounts.get(&system).as_deref(),
        &plan.account,
        &|_| false,
    )
    .await?;
    let current = caches.roles.get(&base);
    let role = ensure(
        &Api::namespaced(client.clone(), &id.namespace),
        current.as_deref().and_then(Option::as_ref),
        &plan.base_role,
        &|_| false,
    )
    .await?;
    let wanted = &plan.base_binding;
    let current = caches.role_bindings.get(&base);
    let binding = ensure(
        &Api::namespaced(client.clone(), &id.namespace),
        current.as_ref().and_then(|kept| kept.whole.as_deref()),
        wanted,
        &|have: &RoleBinding| have.role_ref != wanted.role_ref,
    )
    .await?;
    ensure(
        &Api::<ResourceGroup>::namespaced(client.clone(), &id.namespace),
        caches.inventory(id).as_deref(),
        &plan.inventory,
        &|_| false,
    )
    .await?;
    let outcomes = [account, role, binding];
    Ok(outcomes.iter().any(|outcome| *outcome != Outcome::Unchanged))
}

/// Makes the bindings of a sync. Rights are granted first and revoked last. A role that cannot be bound stops neither the
/// others nor the revocation.
pub async fn ensure_bindings(client: &Client, caches: &Caches, id: &SyncId, plan: &Plan) -> Bound {
    let mut bound = Bound::default();
    for role in &plan.roles {
        let failure = if role.is_wanted() {
            match bind(client, caches, id, role).await {
                Ok(outcome) => {
                    bound.is_changed |= outcome != Outcome::Unchanged;
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
        revoke(client, caches, id, plan).await,
        config_sync_bindings::revoke(client, caches, id).await,
    ] {
        match revoked {
            Ok(is_changed) => bound.is_changed |= is_changed,
            Err(error) => bound.error = Some(error),
        }
    }
    bound
}

async fn bind(client: &Client, caches: &Caches, id: &SyncId, role: &PlannedRole) -> Result<Outcome, Error> {
    let role_ref = plan::role_ref(role.role.kind.as_str(), role.role.name.clone());
    let subjects = Some(vec![plan::subject(id)]);
    let namespace = role.role.namespace.as_deref().unwrap_or_default();
    let name = Name::new(namespace, role.binding.as_str());
    let metadata = plan::metadata(id, namespace, role.binding.clone());
    if namespace.is_empty() {
        let wanted = ClusterRoleBinding {
            metadata,
            role_ref,
            subjects,
        };
        let current = caches.cluster_role_bindings.get(&name);
        let current = current.as_ref().and_then(|kept| kept.whole.as_deref());
        let api = Api::all(client.clone());
        ensure(&api, current, &wanted, &|have: &ClusterRoleBinding| {
            have.role_ref != wanted.role_ref
        })
        .await
    } else {
        let wanted = RoleBinding {
            metadata,
            role_ref,
            subjects,
        };
        let current = caches.role_bindings.get(&name);
        let current = current.as_ref().and_then(|kept| kept.whole.as_deref());
        let api = Api::namespaced(client.clone(), namespace);
        ensure(&api, current, &wanted, &|have: &RoleBinding| {
            have.role_ref != wanted.role_ref
        })
        .await
    }
}

/// Removes every binding with the labels of the sync that is not planned. Returns true if a right was revoked.
async fn revoke(client: &Client, caches: &Caches, id: &SyncId, plan: &Plan) -> Result<bool, Error> {
    let base = Name::new(id.namespace.clone(), names::base(id));
    let is_planned = |name: &Name| {
        *name == base
            || plan.roles.iter().any(|role| {
                let namespace = role.role.namespace.as_deref().unwrap_or_default();
                role.is_wanted() && role.binding == *name.name && namespace == &*name.namespace
            })
    };
    let mut is_changed = false;
    let mut failure = None;
    let mut note = |unbound: Result<bool, Error>| match unbound {
        Ok(gone) => is_changed |= gone,
        Err(error) => failure = Some(error),
    };
    for (name, kept) in caches.cluster_role_bindings.all_indexed(bindings_of(id)) {
        if let Some(binding) = kept.whole_of(id).filter(|_| !is_planned(&name)) {
            note(unbind(&Api::<ClusterRoleBinding>::all(client.clone()), id, binding).await);
        }
    }
    for (name, kept) in caches.role_bindings.all_indexed(bindings_of(id)) {
        if let Some(binding) = kept.whole_of(id).filter(|_| !is_planned(&name)) {
            let api = Api::<RoleBinding>::namespaced(client.clone(), &name.namespace);
            note(unbind(&api, id, binding).await);
        }
    }
    failure.map_or(Ok(is_changed), Err)
}

/// Removes the rights that a binding with the labels of a sync gives to its account. Returns true if there were any.
///
/// Labels prove nothing, as anybody can write them. A binding without the name of one of the sync's own is deleted only if
/// it binds nothing but the account. Bindings of a RepoSync's account are the tenant's, who may have copied one of ours.
async fn unbind<K: Binding>(api: &Api<K>, id: &SyncId, binding: &K) -> Result<bool, Error> {
    let name = binding.name_any();
    if names::is_binding(id, &name) {
        write::delete(api, &name, binding.uid().as_deref()).await?;
        return Ok(true);
    }
    match id.kind {
        SyncKind::Root => config_sync_bindings::remove_subject(api, binding, &plan::subject(id)).await,
        SyncKind::Repo => Ok(false),
    }
}

/// Removes everything that was made for a sync: its Deployment, then rights, then the account, then the inventory.
///
/// The objects are listed from the API server and not from a cache, so that those of a moment ago are included. An object
/// that has the labels but not the name stays, as anybody can write labels.
pub async fn remove_all(client: &Client, id: &SyncId) -> Result<(), Error> {
    if id.name.len() > MAX_LABEL {
        // Nothing can have been made for such a sync, and the API server refuses the selector.
        return Ok(());
    }
    let all = client.clone();
    let account = names::reconciler(id);
    let system = || (SYSTEM_NAMESPACE, account.as_str());
    let params = ListParams::default().labels(&names::selector(id));
    remove::<Deployment>(client, id, system()).await?;
    for binding in list(&Api::<ClusterRoleBinding>::all(all.clone()), id, &params).await? {
        unbind(&Api::all(all.clone()), id, &binding).await?;
    }
    for binding in list(&Api::<RoleBinding>::all(all.clone()), id, &params).await? {
        let namespace = binding.namespace().unwrap_or_default();
        unbind(&Api::namespaced(all.clone(), &namespace), id, &binding).await?;
    }
    remove::<Role>(client, id, (&id.namespace, &names::base(id))).await?;
    remove::<ServiceAccount>(client, id, system()).await?;
    remove::<ResourceGroup>(client, id, (&id.namespace, &id.name)).await
}

async fn list<K>(api: &Api<K>, id: &SyncId, params: &ListParams) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let found = api.list(params).await;
    Ok(found.context(|| format!("list every {kind} of {id}"))?.items)
}

/// Removes an object, if it has the labels of the sync.
async fn remove<K>(client: &Client, id: &SyncId, (namespace, name): (&str, &str)) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let params = ListParams::default()
        .labels(&names::selector(id))
        .fields(&format!("metadata.name={name}"));
    for object in list(&api, id, &params).await? {
        write::delete(&api, name, object.uid().as_deref()).await?;
    }
    Ok(())
}

/// The API of the sync itself.
pub fn sync_api(client: &Client, id: &SyncId) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &id.namespace, &id.kind.resource())
}

/// Adds and removes finalizers of a sync, and marks it as the parent of the set of its objects.
pub async fn set_finalizers(
    client: &Client,
    sync: &Sync,
    add: &[&str],
    remove: &[&str],
) -> Result<(), Error> {
    let have = sync.metadata.finalizers.clone().unwrap_or_default();
    let mut wanted: Vec<&str> = have
        .iter()
        .map(String::as_str)
        .filter(|name| !remove.contains(name))
        .collect();
    wanted.extend(add.iter().filter(|name| !have.iter().any(|have| have == **name)));
    let set = names::apply_set(&sync.id);
    let labels = sync.metadata.labels.as_ref();
    let is_marked = labels.is_some_and(|labels| labels.get(names::APPLY_SET_ID) == Some(&set));
    if wanted == have && (is_marked || sync.deleting()) {
        return Ok(());
    }
    let mut metadata = json!({
        "finalizers": wanted,
        "uid": sync.metadata.uid,
        // Finalizers are a list: the version protects those of other writers.
        "resourceVersion": sync.metadata.resource_version,
    });
    if !sync.deleting()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.insert("labels".into(), json!({ names::APPLY_SET_ID: set }));
        metadata.insert(
            "annotations".into(),
            json!({ "applyset.kubernetes.io/tooling": "configsync.gke.io/v1" }),
        );
    }
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    match sync_api(client, &sync.id)
        .patch(&sync.id.name, &params, &patch)
        .await
    {
        Ok(_) => Ok(()),
        // The cache lags behind; the newer sync is on its way and will be reconciled.
        Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && sync.deleting()) => {
            Ok(())
        }
        Err(error) => Err(error).context(|| format!("change the finalizers of {}", sync.id)),
    }
}
