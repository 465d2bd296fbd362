//! Pure: what a server-side apply sends of the fields that it has to ignore.
//!
//! Omitting a field that only our field manager owns would delete it. So fields that we still own are sent again with
//! their live value, which changes nothing. Once another writer changes such a field we no longer own it; it is omitted and
//! stays as it is.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};
use writ_api::work::{IgnoreField, IgnoreFieldCondition};
use writ_runtime::path::{Budget, Path, PathError};

/// Removes the fields with this condition from a manifest. Missing fields are no error.
pub fn remove_ignored(
    object: &mut Value,
    fields: &[IgnoreField],
    condition: IgnoreFieldCondition,
) -> Result<(), String> {
    let budget = Budget::default();
    for field in fields.iter().filter(|field| field.condition == condition) {
        for (text, path) in paths(field) {
            let path = path.map_err(|error| error.to_string())?;
            path.remove(object, &budget)
                .map_err(|error| format!("{text:?}: {error}"))?;
        }
    }
    Ok(())
}

/// The paths of a field, each with its text.
fn paths(field: &IgnoreField) -> impl Iterator<Item = (&str, Result<Path, PathError>)> {
    type Read = fn(&str) -> Result<Path, PathError>;
    [
        (&field.json_paths, Path::jsonpath as Read),
        (&field.json_pointers, Path::pointer),
        (&field.jq_path_expressions, Path::jq),
    ]
    .into_iter()
    .flat_map(|(paths, read)| paths.iter().map(move |path| (path.as_str(), read(path))))
}

/// The fields that a manager has applied, as the server lists them.
pub fn applied_by<'a>(entries: &'a [ManagedFieldsEntry], manager: &str) -> Option<&'a Value> {
    let ours = entries.iter().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    })?;
    ours.fields_v1.as_ref().map(|fields| &fields.0)
}

/// The manifest, with the ignored fields of these conditions replaced by their live values where they are `owned`, and
/// without them elsewhere.
pub fn replace_ignored(
    object: &Value,
    live: &Value,
    owned: Option<&Value>,
    fields: &[IgnoreField],
    conditions: &[IgnoreFieldCondition],
) -> Result<Value, String> {
    let budget = Budget::default();
    let mut ignored = HashSet::new();
    for field in fields
        .iter()
        .filter(|field| conditions.contains(&field.condition))
    {
        for (text, path) in paths(field) {
            let path = path.map_err(|error| error.to_string())?;
            let found = path
                .select(object, &budget)
                .map_err(|error| format!("{text:?}: {error}"))?;
            ignored.extend(found.into_iter().map(std::ptr::from_ref));
        }
    }
    let at = LiveField {
        live: Some(live),
        owned,
    };
    Ok(rebuilt(object, at, &ignored).unwrap_or(Value::Null))
}

/// The live value at one path of an object, and the owned fields below it; none if that is `None`.
#[derive(Clone, Copy)]
struct LiveField<'a> {
    live: Option<&'a Value>,
    owned: Option<&'a Value>,
}

/// A part of a manifest without the ignored fields that are not owned.
fn rebuilt(value: &Value, at: LiveField<'_>, ignored: &HashSet<*const Value>) -> Option<Value> {
    if ignored.contains(&std::ptr::from_ref(value)) {
        return Some(owned_part(at.live?, at.owned?));
    }
    Some(match value {
        Value::Object(map) => {
            let entries = map.iter().filter_map(|(key, value)| {
                let below = LiveField {
                    live: at.live.and_then(|live| live.get(key)),
                    owned: at.owned.and_then(|owned| below(owned, &format!("f:{key}"))),
                };
                Some((key.clone(), rebuilt(value, below, ignored)?))
            });
            Value::Object(entries.collect())
        }
        Value::Array(list) => {
            let elements = list.iter().enumerate().filter_map(|(index, value)| {
                let below = element(at, index, value).unwrap_or(LiveField {
                    live: None,
                    owned: None,
                });
                rebuilt(value, below, ignored)
            });
            Value::Array(elements.collect())
        }
        other => other.clone(),
    })
}

/// The owned fields below a key. A field without entries below it is owned as a whole.
fn below<'a>(owned: &'a Value, key: &str) -> Option<&'a Value> {
    if is_whole(owned) {
        return Some(owned);
    }
    owned.get(key)
}

fn is_whole(owned: &Value) -> bool {
    owned.as_object().is_none_or(Map::is_empty)
}

/// The live element that corresponds to one of the manifest: at the same index of a list that is owned as a whole, otherwise
/// with the same key.
fn element<'a>(at: LiveField<'a>, index: usize, value: &Value) -> Option<LiveField<'a>> {
    let (live, owned) = (at.live?.as_array()?, at.owned?);
    if is_whole(owned) {
        return Some(LiveField {
            live: live.get(index),
            owned: Some(owned),
        });
    }
    let (key, below) = owned
        .as_object()?
        .iter()
        .find(|(key, _)| is_key_of(key, index, value))?;
    let live = live
        .iter()
        .enumerate()
        .find(|(index, live)| is_key_of(key, *index, live));
    Some(LiveField {
        live: live.map(|(_, live)| live),
        owned: Some(below),
    })
}

/// Whether a key of owned fields identifies an element: by its keys, some of which the server may have defaulted, by its
/// value, or by its index.
fn is_key_of(key: &str, index: usize, value: &Value) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    match key.split_at_checked(2) {
        Some(("k:", keys)) => read(keys).as_object().is_some_and(|keys| {
            let given =
                |(name, wanted): (&String, &Value)| value.get(name).is_none_or(|value| value == wanted);
            value.is_object() && keys.iter().all(given)
        }),
        Some(("v:", wanted)) => read(wanted) == *value,
        Some(("i:", wanted)) => wanted.parse() == Ok(index),
        _ => false,
    }
}

/// The owned part of a value.
fn owned_part(live: &Value, owned: &Value) -> Value {
    let fields = owned.as_object().filter(|fields| !fields.is_empty());
    match (live, fields) {
        (Value::Object(map), Some(fields)) => {
            let entries = map.iter().filter_map(|(key, value)| {
                let below = fields.get(&format!("f:{key}"))?;
                Some((key.clone(), owned_part(value, below)))
            });
            Value::Object(entries.collect())
        }
        (Value::Array(list), Some(fields)) => {
            let elements = list.iter().enumerate().filter_map(|(index, value)| {
                let (_, below) = fields.iter().find(|(key, _)| is_key_of(key, index, value))?;
                Some(owned_part(value, below))
            });
            Value::Array(elements.collect())
        }
        _ => live.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(ignored: &str, manifest: &Value, live: &Value, owned: &Value) -> Value {
        let fields: Vec<IgnoreField> = serde_json::from_value(
            json!([{"condition": "OnSpokePresent", "jqPathExpressions": [ignored]},
                {"condition": "OnSpokeChange", "jqPathExpressions": [".never"]}]),
        )
        .unwrap();
        let conditions = [IgnoreFieldCondition::OnSpokePresent];
        replace_ignored(manifest, live, Some(owned), &fields, &conditions).unwrap()
    }

    #[test]
    fn owned_field_is_sent_with_its_live_value_and_others_are_omitted() {
        let manifest = json!({"spec": {"replicas": 3, "paused": true}, "never": 1});
        let live = json!({"spec": {"replicas": 5, "paused": true}});
        for (what, owned, wanted) in [
            (
                "changed by another writer",
                json!({"f:spec": {"f:paused": {}}}),
                json!({"paused": true}),
            ),
            (
                "owned, and defaulted by the server",
                json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}),
                json!({"replicas": 5, "paused": true}),
            ),
            (
                "owned as a whole",
                json!({"f:spec": {}}),
                json!({"replicas": 5, "paused": true}),
            ),
            (
                "nothing is owned",
                json!({"f:metadata": {}}),
                json!({"paused": true}),
            ),
        ] {
            let sent = run(".spec.replicas", &manifest, &live, &owned);
            assert_eq!(sent, json!({"spec": wanted, "never": 1}), "{what}");
        }
        let gone = run(
            ".spec.replicas",
            &manifest,
            &json!({}),
            &json!({"f:spec": {"f:replicas": {}}}),
        );
        assert_eq!(gone, json!({"spec": {"paused": true}, "never": 1}));
    }

    #[test]
    fn list_element_is_found_by_its_key() {
        let manifest = json!({"list": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        let live = json!({"list": [{"name": "first", "image": "x"}, {"name": "b", "image": "2"},
            {"name": "a", "protocol": "TCP", "image": "3", "more": "theirs"}]});
        let owned = json!({"f:list": {
            r#"k:{"name":"a","protocol":"TCP"}"#: {".": {}, "f:name": {}, "f:image": {}},
            r#"k:{"name":"b"}"#: {".": {}, "f:name": {}}}});
        let sent = run(".list[].image", &manifest, &live, &owned);
        assert_eq!(
            sent,
            json!({"list": [{"name": "a", "image": "3"}, {"name": "b"}]})
        );
        // Of a value that is ignored as a whole, only the owned part is sent.
        let sent = run(".list", &manifest, &live, &owned);
        assert_eq!(
            sent,
            json!({"list": [{"name": "b"}, {"name": "a", "image": "3"}]})
        );
        let sent = run(".list[0]", &manifest, &live, &owned);
        assert_eq!(
            sent,
            json!({"list": [{"name": "a", "image": "3"}, {"name": "b", "image": "1"}]})
        );
        let sets = json!({"list": ["a", "b"]});
        let sent = run(".list", &sets, &sets, &json!({"f:list": {r#"v:"b""#: {}}}));
        assert_eq!(sent, json!({"list": ["b"]}));
    }

    #[test]
    fn path_that_takes_too_many_steps_is_named() {
        let fields: Vec<IgnoreField> = serde_json::from_value(
            json!([{"condition": "OnSpokePresent", "jqPathExpressions": [".spec.a", ".. | .. | .. | .. | .b"]}]),
        )
        .unwrap();
        let run = |size: usize| {
            let mut object = json!({"spec": {"a": 1, "b": 2, "list": vec![0; size]}});
            remove_ignored(&mut object, &fields, IgnoreFieldCondition::OnSpokePresent).map(|()| object)
        };
        assert_eq!(run(1), Ok(json!({"spec": {"list": [0]}})));
        let problem = run(500_000).unwrap_err();
        assert!(
            problem.contains(".. | ..") && problem.contains("too many steps"),
            "{problem}"
        );
    }
}
