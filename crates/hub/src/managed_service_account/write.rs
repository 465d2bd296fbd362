//! Writes differences, and takes away what is no longer wanted in the parts that are ours alone.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use writ_api::authentication::{ANNOTATION_ADOPT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS};
use writ_runtime::{
    Error,
    apply::{self, Outcome},
    error::Context as _,
};

use crate::MANAGER;

/// Makes the object hold everything in `wanted`, and nothing else in the maps that `exact` points at.
pub async fn ensure<K>(
    api: &Api<K>,
    current: Option<&K>,
    wanted: &K,
    exact: &[&str],
) -> Result<Outcome, Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let Some(current) = current else {
        return apply::ensure(api, None, wanted, MANAGER).await;
    };
    let (have, mut want) = (value(current)?, value(wanted)?);
    for pointer in exact {
        let keys: Vec<String> = have
            .pointer(pointer)
            .and_then(Value::as_object)
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default();
        if let Some(Value::Object(map)) = want.pointer_mut(pointer) {
            for key in keys {
                map.entry(key).or_insert(Value::Null);
            }
        }
    }
    // What a parent or owner no longer says, its account must not say either.
    for key in [ANNOTATION_ADOPT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS] {
        let said = current.annotations().contains_key(key) && !wanted.annotations().contains_key(key);
        if let Some(Value::Object(annotations)) = want.pointer_mut("/metadata/annotations").filter(|_| said) {
            annotations.insert(key.into(), Value::Null);
        }
    }
    let Some(mut patch) = apply::difference(&have, &want) else {
        return Ok(Outcome::Unchanged);
    };
    if let (Some(uid), Value::Object(patch)) = (current.uid(), &mut patch) {
        let metadata = patch
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("uid".into(), Value::String(uid));
        }
    }
    let name = wanted.name_any();
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    api.patch(&name, &params, &Patch::Merge(&patch))
        .await
        .context(|| {
            let kind = K::kind(&K::DynamicType::default()).into_owned();
            format!("change {kind} {name}")
        })?;
    Ok(Outcome::Changed)
}

fn value<T: Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))
}
