//! Objects that are read as far as they can be, so that one that does not parse stops nothing but itself.
//!
//! A list is parsed as a whole: without this, one value that a definition lets through and our types do not would stop a
//! controller for every object of its kind. Agents write the status of their own objects, so such a value could be chosen
//! on purpose.

use std::{borrow::Cow, fmt::Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Value, json};

/// An object as far as it parses: whole, without its status, or with the part of its spec that parses.
#[derive(Clone, Debug)]
pub struct Tolerant<K> {
    object: K,
    problem: Option<String>,
}

impl<K> Tolerant<K> {
    /// The object, if everything that its owner asks for was understood.
    pub fn readable(self) -> Option<K> {
        self.problem.is_none().then_some(self.object)
    }

    /// The object as far as it parses, and why it does not parse as a whole.
    pub fn into_parts(self) -> (K, Option<String>) {
        (self.object, self.problem)
    }
}

impl<'de, K> Deserialize<'de> for Tolerant<K>
where
    K: Resource + DeserializeOwned + Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut whole = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&whole) {
            Ok(object) => {
                return Ok(Self {
                    object,
                    problem: None,
                });
            }
            Err(error) => error,
        };
        // What the owner of an object asks for counts, whatever others report about it.
        let status = whole.as_object_mut().and_then(|fields| fields.remove("status"));
        if status.is_some()
            && let Ok(object) = K::deserialize(&whole)
        {
            tracing::debug!(name = %object.name_any(), %error, "the status of an object does not parse and is ignored");
            return Ok(Self {
                object,
                problem: None,
            });
        }
        let object = parse_partially(&whole, status).map_err(D::Error::custom)?;
        Ok(Self {
            object,
            problem: Some(error.to_string()),
        })
    }
}

/// The metadata, and of status and spec what parses: field by field, so that a deletion option counts although the
/// executor beside it is malformed.
fn parse_partially<K>(whole: &Value, status: Option<Value>) -> serde_json::Result<K>
where
    K: Resource + DeserializeOwned + Default,
{
    let metadata = whole.get("metadata").cloned().unwrap_or_default();
    let mut known = json!({"metadata": metadata, "spec": {}});
    let parse = |fields: &Value| K::deserialize(fields).ok();
    let mut object = K::default();
    *object.meta_mut() = ObjectMeta::deserialize(&metadata)?;
    let Some(bare) = parse(&known) else {
        return Ok(object);
    };
    object = bare;
    if let Some(status) = status {
        let more = with(&known, "", "status", status);
        if let Some(parsed) = parse(&more) {
            (known, object) = (more, parsed);
        }
    }
    let spec = whole.get("spec").and_then(Value::as_object);
    for (key, value) in spec.into_iter().flatten() {
        let more = with(&known, "/spec", key, value.clone());
        if let Some(parsed) = parse(&more) {
            (known, object) = (more, parsed);
        }
    }
    Ok(object)
}

/// A copy of `object` with one more field at `pointer`.
fn with(object: &Value, pointer: &str, key: &str, value: Value) -> Value {
    let mut more = object.clone();
    if let Some(Value::Object(fields)) = more.pointer_mut(pointer) {
        fields.insert(key.to_owned(), value);
    }
    more
}

impl<K: Resource> Resource for Tolerant<K> {
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

/// A list without the objects that do not parse.
pub async fn list<K>(api: &Api<Tolerant<K>>, params: &ListParams) -> kube::Result<Vec<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Default,
{
    let found = api.list(params).await?;
    Ok(found.into_iter().filter_map(Tolerant::readable).collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;

    fn read(spec: &Value, status: &Value) -> Tolerant<Deployment> {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn malformed_status_hides_nothing_else() {
        let spec = json!({"selector": {}, "template": {}, "replicas": 3});
        let whole = read(&spec, &json!({"replicas": 3})).readable().unwrap();
        assert_eq!(whole.status.unwrap().replicas, Some(3));
        let bad = read(&spec, &json!({"replicas": 5_000_000_000_i64}));
        let bad = bad.readable().unwrap();
        assert_eq!(bad.spec.unwrap().replicas, Some(3));
        assert_eq!(bad.status, None);
    }

    #[test]
    fn malformed_spec_keeps_the_fields_that_parse() {
        let bad = read(
            &json!({"selector": {}, "template": {}, "replicas": "three", "paused": true}),
            &json!({"replicas": 2}),
        );
        assert!(bad.clone().readable().is_none());
        let (partial, problem) = bad.into_parts();
        assert_eq!(partial.name_any(), "d");
        assert_eq!(partial.spec.unwrap().paused, Some(true));
        assert!(problem.unwrap().contains("three"));
        assert!(serde_json::from_value::<Tolerant<Deployment>>(json!({"metadata": 1})).is_err());
    }
}
