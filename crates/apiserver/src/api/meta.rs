//! The server's part of `metadata`: names, uids, times, versions, generations.

use serde_json::{Map, Value};

use crate::clock::Clock;
use crate::registry::{Resource, Version};
use crate::schema::Schema;
use crate::ssa;
use crate::store::new_uid;

/// Changes `metadata`, which is made if it is not there.
pub(crate) fn edit<R>(value: &mut Value, change: impl FnOnce(&mut Map<String, Value>) -> R) -> R {
    let mut map = match value.get_mut("metadata").map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let result = change(&mut map);
    if let Some(object) = value.as_object_mut() {
        object.insert("metadata".into(), Value::Object(map));
    }
    result
}

/// The metadata, or null.
pub(super) fn of(value: &Value) -> &Value {
    value.get("metadata").unwrap_or(&Value::Null)
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value
        .get("metadata")
        .and_then(|m| m.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn finalizers(value: &Value) -> Vec<String> {
    value
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

pub(super) fn set_finalizers(value: &mut Value, finalizers: &[String]) {
    edit(value, |metadata| {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".into(), finalizers.into());
        }
    });
}

/// A name from a prefix, as the real server makes them.
pub(crate) fn generate_name(prefix: &str) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name: String = prefix.chars().take(58).collect();
    for _ in 0..5 {
        let index = rand::random::<u32>() as usize % LETTERS.len();
        name.push(LETTERS.get(index).copied().map_or('x', char::from));
    }
    name
}

/// Whether `generation` counts changes of objects of this resource.
pub(super) fn counts_generation(resource: &Resource) -> bool {
    resource.builtin.is_none_or(|kind| kind.has_generation)
}

/// Gives a new object its identity.
pub(super) fn begin(resource: &Resource, value: &mut Value, clock: &Clock) {
    let generated = {
        let prefix = text(value, "generateName");
        (text(value, "name").is_empty() && !prefix.is_empty()).then(|| generate_name(prefix))
    };
    let counts = counts_generation(resource);
    edit(value, |metadata| {
        if let Some(name) = generated {
            metadata.insert("name".into(), name.into());
        }
        metadata.insert("uid".into(), new_uid().into());
        metadata.insert("creationTimestamp".into(), clock.rfc3339().into());
        if counts {
            metadata.insert("generation".into(), 1.into());
        }
    });
}

/// Forgets what only the server says of a new object, before anybody comes to own it.
pub(super) fn wipe(value: &mut Value) {
    edit(value, |metadata| {
        for name in [
            "creationTimestamp",
            "uid",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(name);
        }
    });
}

/// Forgets what is not stored. Whoever only tries a write gets it back.
pub(super) fn forget_link(value: &mut Value) {
    edit(value, |metadata| metadata.remove("selfLink"));
}

/// Carries over what an update cannot change.
pub(super) fn carry(old: &Value, new: &mut Value) {
    let empty = Map::new();
    let old = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    edit(new, |new| {
        if lacks(new, "uid") {
            copy(old, new, "uid");
        }
        // Whatever was written: what was saved of another object may be applied to this one.
        copy(old, new, "creationTimestamp");
        copy(old, new, "generation");
    });
}

/// What is being deleted is so since then, whatever was written. Whoever wrote it owns the field all the same.
pub(super) fn carry_end(old: &Value, new: &mut Value) {
    let Some(old) = old.get("metadata").and_then(Value::as_object) else {
        return;
    };
    edit(new, |new| {
        if old.contains_key("deletionTimestamp") || lacks(new, "deletionTimestamp") {
            copy(old, new, "deletionTimestamp");
        }
        if lacks(new, "deletionGracePeriodSeconds") {
            copy(old, new, "deletionGracePeriodSeconds");
        }
    });
}

/// A resourceVersion, which is digits alone.
pub(super) fn parse_version(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// How long the end takes.
pub(super) fn grace(value: &Value) -> Option<i64> {
    value
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
}

fn lacks(metadata: &Map<String, Value>, name: &str) -> bool {
    metadata
        .get(name)
        .is_none_or(|value| value.is_null() || value == "")
}

fn copy(from: &Map<String, Value>, to: &mut Map<String, Value>, name: &str) {
    match from.get(name) {
        Some(value) => drop(to.insert(name.into(), value.clone())),
        None => drop(to.remove(name)),
    }
}

/// Counts a change of the specification: of anything but metadata, and status where that is written apart. `emptied` says
/// that it had empty lists, which are not stored.
pub(super) fn count_generation(
    resource: &Resource,
    version: &Version,
    old: &Value,
    new: &mut Value,
    emptied: bool,
) {
    let builtin = |kind: &str| resource.kind == kind && resource.builtin.is_some();
    // That of a PriorityClass stays what it was.
    if !counts_generation(resource) || builtin("PriorityClass") {
        return;
    }
    // Slices do not tell an empty list from none; others do, and see a change where nothing empty is stored.
    let is_slice = builtin("EndpointSlice");
    let is_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let exact = [
        "NetworkPolicy",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    let emptied = emptied && exact.iter().any(|kind| builtin(kind));
    let relevant = |name: &str| {
        !(matches!(name, "metadata" | "apiVersion" | "kind") || (name == "status" && version.status))
    };
    let [before, after] = [old, &*new].map(|value| -> Vec<(&String, &Value)> {
        let map = value.as_object().into_iter().flatten();
        map.filter(|(name, value)| relevant(name) && !(is_slice && is_nothing(value)))
            .collect()
    });
    // Annotations of a deployment steer its rollout, labels of a slice say whose it is, so they count too.
    let differs = |pointer: &str| old.pointer(pointer) != new.pointer(pointer);
    let steered =
        builtin("Deployment") && differs("/metadata/annotations") || is_slice && differs("/metadata/labels");
    let schema = version.schema.as_deref().filter(|_| resource.builtin.is_some());
    let same_amounts = |schema: &Schema| {
        let mut pairs = before.iter().zip(&after);
        before.len() == after.len() && pairs.all(|(a, b)| a.0 == b.0 && schema.same_amounts(a.0, a.1, b.1))
    };
    let changed = before != after && !schema.is_some_and(same_amounts);
    if steered || emptied || changed {
        let generation = old
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or(0)
            + 1;
        edit(new, |metadata| {
            metadata.insert("generation".into(), generation.into())
        });
    }
}

/// Whether two objects differ in nothing but the server's bookkeeping.
pub(super) fn same(old: &Value, new: &Value) -> bool {
    ssa::same_but_times(old, new, &["resourceVersion"])
}
