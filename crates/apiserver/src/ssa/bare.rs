//! Objects without their owners, and objects that differ in nothing but those.
//!
//! Every write asks this, and owners are often the largest part of an object, so nothing is copied to be compared.

use serde_json::{Map, Value};

const OWNERS: &str = "managedFields";

/// Takes the owners out.
pub(super) fn take_owners(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove(OWNERS)
}

/// A copy without owners.
pub(super) fn without_owners(object: &Value) -> Value {
    let Value::Object(fields) = object else {
        return object.clone();
    };
    let copied = fields.iter().map(|(name, value)| {
        let copy = match value {
            Value::Object(metadata) if name == "metadata" => Value::Object(
                metadata
                    .iter()
                    .filter(|(name, _)| *name != OWNERS)
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
            value => value.clone(),
        };
        (name.clone(), copy)
    });
    Value::Object(copied.collect())
}

/// Whether two objects differ in nothing but the times at which owners wrote, and these fields of their metadata.
pub fn same_but_times(a: &Value, b: &Value, ignored: &[&str]) -> bool {
    let (a_meta, b_meta) = (a.get("metadata"), b.get("metadata"));
    let is_other = |name: &str| name != "metadata";
    let is_compared = |name: &str| name != OWNERS && !ignored.contains(&name);
    same_fields(Some(a), Some(b), &is_other)
        && same_fields(a_meta, b_meta, &is_compared)
        && same_owners(owners(a_meta), owners(b_meta))
}

fn owners(metadata: Option<&Value>) -> Option<&Value> {
    metadata?.get(OWNERS)
}

fn same_owners(a: Option<&Value>, b: Option<&Value>) -> bool {
    let (Some(Value::Array(a)), Some(Value::Array(b))) = (a, b) else {
        return a == b;
    };
    let is_timeless = |name: &str| name != "time";
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| same_fields(Some(a), Some(b), &is_timeless))
}

/// Whether the fields that count are the same; what is no object has none.
fn same_fields(a: Option<&Value>, b: Option<&Value>, counts: &dyn Fn(&str) -> bool) -> bool {
    fn fields<'a>(
        value: Option<&'a Value>,
        counts: &dyn Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let map: Option<&Map<String, Value>> = value.and_then(Value::as_object);
        map.into_iter().flatten().filter(|(name, _)| counts(name))
    }
    fields(a, counts).eq(fields(b, counts))
}
