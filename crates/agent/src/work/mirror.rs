//! Keeps a cache in step with a watch. Objects are read one by one: one that cannot be understood stops nothing but
//! itself.

use std::collections::HashSet;

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::cache::Cache;

/// A change of a watched object.
pub enum Change<K> {
    /// It came or changed.
    Put(K),
    /// It came or changed, and cannot be understood: its name, and why. The cache knows both, and its metadata.
    Broken(String, String),
    /// It went.
    Gone(String),
    /// All that there is has been seen.
    Listed,
}

/// Follows a watch for ever.
pub async fn follow<K>(api: Api<K>, cache: &Cache<K>, changed: impl Fn(Change<K>))
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Send + 'static,
{
    let kind = K::kind(&()).into_owned();
    let resource = ApiResource::erase::<K>(&());
    let client: Client = api.clone().into_client();
    let raw: Api<DynamicObject> = match api.namespace() {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let events = watcher(raw, watcher::Config::default().page_size(100)).default_backoff();
    pin_mut!(events);
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(object.name_any());
                put(object, cache, &changed);
            }
            Ok(watcher::Event::Apply(object)) => put(object, cache, &changed),
            Ok(watcher::Event::InitDone) => {
                for name in cache.names() {
                    if !listed.contains(&name) {
                        cache.remove(&name);
                        changed(Change::Gone(name));
                    }
                }
                listed.clear();
                changed(Change::Listed);
            }
            Ok(watcher::Event::Delete(object)) => {
                cache.remove(&object.name_any());
                changed(Change::Gone(object.name_any()));
            }
            Err(error) => tracing::warn!(kind, %error, "watch interrupted, will try again"),
        }
    }
}

fn put<K>(mut object: DynamicObject, cache: &Cache<K>, changed: &impl Fn(Change<K>))
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    object.metadata.managed_fields = None;
    let name = object.name_any();
    let metadata = json!({"metadata": object.metadata, "spec": {}, "status": object.data.get("status")});
    let spec = object.data.get("spec").cloned();
    let (object, problem) = match serde_json::to_value(object).and_then(serde_json::from_value::<K>) {
        Ok(object) => (Ok(object), None),
        // Without what it asks for: that it exists, whether it is on its way out and what it leaves behind then counts all
        // the same.
        Err(error) => (
            bare(metadata, spec.as_ref()),
            Some(format!("this agent cannot understand it: {error}")),
        ),
    };
    let kept = object.and_then(|object| {
        let put = cache.put_with(&object, problem.as_deref());
        Ok((put.map_err(|e| e.to_string())?, object))
    });
    match (kept, problem) {
        (Ok((true, object)), None) => changed(Change::Put(object)),
        (Ok((true, _)), Some(problem)) => changed(Change::Broken(name, problem)),
        (Ok((false, _)), _) => {}
        (Err(error), _) => tracing::error!(name, error, "an object cannot be kept"),
    }
}

/// An object with what can be understood of its spec, and without its status if that is what cannot be understood.
fn bare<K: DeserializeOwned>(mut rest: Value, spec: Option<&Value>) -> Result<K, String> {
    let read = |rest: &Value| serde_json::from_value::<K>(rest.clone());
    if read(&rest).is_err()
        && let Some(rest) = rest.as_object_mut()
    {
        rest.remove("status");
    }
    let mut object = read(&rest).map_err(|error| error.to_string())?;
    for (key, value) in spec.and_then(Value::as_object).into_iter().flatten() {
        let mut more = rest.clone();
        if let Some(spec) = more.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert(key.clone(), value.clone());
        }
        if let Ok(understood) = read(&more) {
            (rest, object) = (more, understood);
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use writ_api::work::{ManifestWork, PropagationPolicy};

    use super::*;

    #[test]
    fn what_is_understood_of_a_spec_counts_when_the_work_goes() {
        let rest = json!({"metadata": {"name": "w"}, "spec": {}, "status": {"conditions": "none"}});
        let spec = json!({"deleteOption": {"propagationPolicy": "Orphan"}, "executor": 7,
            "workload": {"manifests": [{"kind": "ConfigMap"}]}});
        let work: ManifestWork = bare(rest, Some(&spec)).unwrap();
        let option = work.spec.delete_option.unwrap();
        assert_eq!(option.propagation_policy, PropagationPolicy::Orphan);
        assert_eq!(work.spec.workload.manifests.len(), 1);
        assert!(work.spec.executor.is_none() && work.status.is_none());
    }
}
