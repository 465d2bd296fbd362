//! Writes differences, and takes away what is no longer wanted in the parts that are ours alone.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use writ_api::authentication::{ANNOTATION_ADOPT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS};
use writ_controller::{
    Error,
    error::Context as _,
    write::{self, Outcome},
};

use crate::MANAGER;

/// Makes the object hold everything in `wanted`, and nothing else below what `exact` points at.
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
        return write::ensure(api, None, wanted, MANAGER).await;
    };
    let Some(mut patch) = change(current, wanted, exact)? else {
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

/// The merge patch that [`ensure`] sends; none if the object is as wanted.
pub fn change<K: Resource + Serialize>(
    current: &K,
    wanted: &K,
    exact: &[&str],
) -> Result<Option<Value>, Error> {
    let (have, mut want) = (value(current)?, value(wanted)?);
    for pointer in exact {
        if let (Some(have), Some(want)) = (have.pointer(pointer), want.pointer_mut(pointer)) {
            without_the_rest(have, want);
        }
    }
    // What a parent or owner no longer says, its account must not say either.
    for key in [ANNOTATION_ADOPT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS] {
        let said = current.annotations().contains_key(key) && !wanted.annotations().contains_key(key);
        if let Some(Value::Object(annotations)) = want.pointer_mut("/metadata/annotations").filter(|_| said) {
            annotations.insert(key.into(), Value::Null);
        }
    }
    Ok(write::difference(&have, &want))
}

/// Adds to `want` that what only `have` holds shall go.
fn without_the_rest(have: &Value, want: &mut Value) {
    if let (Value::Object(have), Value::Object(want)) = (have, want) {
        for (key, have) in have {
            match want.get_mut(key) {
                Some(want) => without_the_rest(have, want),
                None => {
                    want.insert(key.clone(), Value::Null);
                }
            }
        }
    }
}

fn value<T: Serialize>(object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))
}
