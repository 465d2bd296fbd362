//! Watches in which an object that cannot be read stops nothing but itself.
//!
//! A list is read as a whole: without this, one value that a definition lets through and our types do not would stop a
//! controller for every object of its kind. Agents write the status of their own objects, so that a value could be
//! chosen to do just that.

use std::{borrow::Cow, fmt::Debug};

use futures::{Stream, StreamExt, future};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource, ResourceExt,
    api::ListParams,
    runtime::watcher::{self, Event, watcher},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

/// An object as far as it can be read: whole, without its status, or its metadata alone.
#[derive(Clone, Debug)]
pub struct Guarded<K> {
    object: K,
    readable: bool,
}

impl<K> Guarded<K> {
    /// The object; `None` if what it asks for cannot be read.
    pub fn readable(self) -> Option<K> {
        self.readable.then_some(self.object)
    }
}

impl<'de, K> Deserialize<'de> for Guarded<K>
where
    K: Resource + DeserializeOwned + Default,
    K::DynamicType: Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut whole = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&whole) {
            Ok(object) => {
                return Ok(Self {
                    object,
                    readable: true,
                });
            }
            Err(error) => error,
        };
        // What the owner of an object asks for counts, whatever somebody else reports about it.
        let had_status = whole
            .as_object_mut()
            .is_some_and(|o| o.remove("status").is_some());
        let without_status = had_status.then(|| K::deserialize(&whole).ok()).flatten();
        let readable = without_status.is_some();
        let object = if let Some(object) = without_status {
            object
        } else {
            let metadata = whole.get_mut("metadata").map(Value::take).unwrap_or_default();
            let mut object = K::default();
            *object.meta_mut() = ObjectMeta::deserialize(metadata).map_err(D::Error::custom)?;
            object
        };
        tracing::warn!(
            kind = %K::kind(&K::DynamicType::default()),
            namespace = object.namespace().unwrap_or_default(),
            name = object.name_any(),
            %error,
            "{} cannot be read: it counts as absent",
            if readable { "the status of an object" } else { "an object" },
        );
        Ok(Self { object, readable })
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

/// A watch like [`watcher()`], in which an object that cannot be read is one that is gone.
pub fn guarded<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Default + Send + 'static,
    K::DynamicType: Default,
{
    watcher(api, config).filter_map(|event| future::ready(event.map(open).transpose()))
}

/// A list without the objects that cannot be read.
pub async fn list<K>(api: &Api<Guarded<K>>, params: &ListParams) -> kube::Result<Vec<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Default,
    K::DynamicType: Default,
{
    let found = api.list(params).await?;
    Ok(found.into_iter().filter_map(Guarded::readable).collect())
}

fn open<K>(event: Event<Guarded<K>>) -> Option<Event<K>> {
    Some(match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.readable()?),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) if object.readable => Event::Apply(object.object),
        Event::Apply(object) | Event::Delete(object) => Event::Delete(object.object),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;

    fn read(spec: &Value, status: &Value) -> Guarded<Deployment> {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_status_that_cannot_be_read_hides_nothing_else() {
        let spec = json!({"selector": {}, "template": {}, "replicas": 3});
        let whole = read(&spec, &json!({"replicas": 3})).readable().unwrap();
        assert_eq!(whole.status.unwrap().replicas, Some(3));
        let bad = read(&spec, &json!({"replicas": 5_000_000_000_i64}))
            .readable()
            .unwrap();
        assert_eq!(bad.spec.unwrap().replicas, Some(3));
        assert_eq!(bad.status, None);
    }

    #[test]
    fn what_cannot_be_read_is_gone() {
        let bad = || read(&json!({"replicas": "three"}), &json!({}));
        assert_eq!(bad().name_any(), "d");
        assert!(matches!(open(Event::Apply(bad())), Some(Event::Delete(d)) if d.name_any() == "d"));
        assert!(open(Event::InitApply(bad())).is_none());
        assert!(serde_json::from_value::<Guarded<Deployment>>(json!({"metadata": 1})).is_err());
    }
}
