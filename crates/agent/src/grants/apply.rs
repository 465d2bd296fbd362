//! The writes of grants, all by server-side apply: the server records which fields are theirs.

use std::fmt::Debug;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use writ_controller::{Error, error::Context as _, write};

use super::{
    model::{Step, WRITER},
    object::Object,
};
use crate::RecreateLock;

/// Carries out one step in a namespace.
pub async fn step(spoke: &Client, lock: &RecreateLock, namespace: &str, step: &Step) -> Result<(), Error> {
    let roles: Api<Role> = write::namespaced(spoke, namespace);
    let bindings: Api<RoleBinding> = write::namespaced(spoke, namespace);
    match step {
        Step::Create(Object::Role(role)) => create(&roles, role.as_ref()).await,
        Step::Create(Object::RoleBinding(binding)) => {
            // A work may be recreating it with another role.
            let _not_recreated = lock.read().await;
            create(&bindings, binding.as_ref()).await
        }
        Step::Change(Object::Role(role)) | Step::Empty(Object::Role(role)) => {
            change(&roles, role.as_ref()).await
        }
        Step::Change(Object::RoleBinding(binding)) | Step::Empty(Object::RoleBinding(binding)) => {
            change(&bindings, binding.as_ref()).await
        }
        Step::Replace { to, was } => {
            let _alone = lock.write().await;
            match was {
                // As it was seen: a work may have created its own while this waited for the lock.
                Some(was) => write::delete_as_seen(&bindings, was.as_ref()).await?,
                None => write::delete(&bindings, &to.name_any(), None).await?,
            }
            create(&bindings, to.as_ref()).await
        }
        Step::Release(Object::Role(role)) => release(&roles, role.as_ref()).await,
        Step::Release(Object::RoleBinding(binding)) => release(&bindings, binding.as_ref()).await,
        // As it was seen: a work may have taken it over since, and then it stays.
        Step::Delete(Object::Role(role)) => write::delete_as_seen(&roles, role.as_ref()).await,
        Step::Delete(Object::RoleBinding(binding)) => {
            write::delete_as_seen(&bindings, binding.as_ref()).await
        }
    }
}

/// Creates it. Not by force: an object of that name that was created in this moment stays as it is.
async fn create<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    apply(api, "create", object, &PatchParams::apply(WRITER), object).await
}

/// Makes the content exactly this; owners, labels and annotations of others stay.
async fn change<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    apply(api, "change", object, &PatchParams::apply(WRITER).force(), object).await
}

/// Gives up every field; another owner keeps the object as it is.
async fn release<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    let meta = object.meta();
    // As it was seen: if the work lets go in the same moment, the object has to be deleted instead.
    let nothing = json!({
        "apiVersion": K::api_version(&kind),
        "kind": K::kind(&kind),
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
    });
    let params = PatchParams::apply(WRITER).force();
    apply(api, "release", object, &params, &nothing).await
}

async fn apply<K>(
    api: &Api<K>,
    verb: &str,
    object: &K,
    params: &PatchParams,
    fields: &(impl Serialize + Debug),
) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let name = object.name_any();
    let written = api.patch(&name, params, &Patch::Apply(fields)).await.map(drop);
    written.context(|| format!("{verb} {} {name}", K::kind(&K::DynamicType::default())))
}
