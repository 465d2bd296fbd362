//! Reads the objects of a request.

use kube::core::DynamicObject;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use writ_controller::Error;

use super::model::{Decision, Request};

/// The stored and the new object of a request, without their status.
///
/// The status is left out so that an object whose status cannot be read can still be changed and deleted.
#[derive(Debug)]
pub struct OldAndNew<K> {
    /// The stored object; none on creation.
    pub old: Option<K>,
    /// The new object; none on deletion.
    pub new: Option<K>,
}

impl<K: DeserializeOwned> OldAndNew<K> {
    /// Reads both objects.
    pub fn of(request: &Request) -> Result<Self, Error> {
        Ok(Self {
            old: read(request.old_object.as_ref())?,
            new: read(request.object.as_ref())?,
        })
    }
}

fn read<K: DeserializeOwned>(object: Option<&DynamicObject>) -> Result<Option<K>, Error> {
    let Some(mut object) = object.cloned() else {
        return Ok(None);
    };
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .map(Some)
        .map_err(|e| Error::Invalid(format!("the object cannot be read: {e}")))
}

/// The change from one object to the other.
pub fn patch_between<K: Serialize>(before: &K, after: &K) -> Result<json_patch::Patch, Error> {
    let value = |object: &K| {
        serde_json::to_value(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))
    };
    Ok(json_patch::diff(&value(before)?, &value(after)?))
}

/// The spec of an object.
pub fn spec_of(object: Option<&DynamicObject>) -> Option<&Value> {
    object?.data.get("spec")
}

/// Whether the request changes an object without changing its spec.
pub fn spec_unchanged(request: &Request) -> bool {
    request.old_object.is_some() && spec_of(request.object.as_ref()) == spec_of(request.old_object.as_ref())
}

/// Reads a spec; an absent one is read as an empty object. The error is the decision about a spec that cannot be read.
pub fn parse_spec<T: DeserializeOwned>(spec: Option<&Value>) -> Result<T, Decision> {
    let spec = spec
        .cloned()
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    serde_json::from_value(spec)
        .map_err(|error| Decision::invalid(format!("the spec cannot be understood: {error}")))
}
