//! Pure: what a server-side apply says of fields that it leaves alone.
//!
//! Who leaves out a field that only he has applied removes it. So what is still ours is said again, as it is on the
//! cluster: that changes nothing. It is ours until somebody else changes it, and then it is left out and stays as it is.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};
use writ_api::work::{IgnoreField, IgnoreFieldCondition};
use writ_runtime::path::Budget;

use super::ignore::paths;

/// The fields that a manager has applied, as the server writes them.
pub fn applied_by<'a>(entries: &'a [ManagedFieldsEntry], manager: &str) -> Option<&'a Value> {
    let ours = entries.iter().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    })?;
    ours.fields_v1.as_ref().map(|fields| &fields.0)
}

/// The manifest, with the fields of these conditions as they are on the cluster where they are `owned`, and without them
/// where they are not.
pub fn settle(
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
    let place = Place {
        live: Some(live),
        owned,
    };
    Ok(rebuilt(object, place, &ignored).unwrap_or(Value::Null))
}

/// What is on the cluster in one place of an object, and which fields there are owned; none of them if that is `None`.
#[derive(Clone, Copy)]
struct Place<'a> {
    live: Option<&'a Value>,
    owned: Option<&'a Value>,
}

/// A part of a manifest, without what is ignored and not owned.
fn rebuilt(value: &Value, place: Place<'_>, ignored: &HashSet<*const Value>) -> Option<Value> {
    if ignored.contains(&std::ptr::from_ref(value)) {
        return Some(part(place.live?, place.owned?));
    }
    Some(match value {
        Value::Object(map) => {
            let entries = map.iter().filter_map(|(key, value)| {
                let below = Place {
                    live: place.live.and_then(|live| live.get(key)),
                    owned: place.owned.and_then(|owned| below(owned, &format!("f:{key}"))),
                };
                Some((key.clone(), rebuilt(value, below, ignored)?))
            });
            Value::Object(entries.collect())
        }
        Value::Array(list) => {
            let elements = list.iter().enumerate().filter_map(|(index, value)| {
                let below = element(place, index, value).unwrap_or(Place {
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

/// The fields below one of a set. What has none below is owned as a whole.
fn below<'a>(owned: &'a Value, key: &str) -> Option<&'a Value> {
    if is_whole(owned) {
        return Some(owned);
    }
    owned.get(key)
}

fn is_whole(owned: &Value) -> bool {
    owned.as_object().is_none_or(Map::is_empty)
}

/// The place of an element of a list: the same index in a list that is owned as a whole, else the one of the same key.
fn element<'a>(place: Place<'a>, index: usize, value: &Value) -> Option<Place<'a>> {
    let (live, owned) = (place.live?.as_array()?, place.owned?);
    if is_whole(owned) {
        return Some(Place {
            live: live.get(index),
            owned: Some(owned),
        });
    }
    let (key, below) = owned
        .as_object()?
        .iter()
        .find(|(key, _)| names(key, index, value))?;
    let live = live
        .iter()
        .enumerate()
        .find(|(index, live)| names(key, *index, live));
    Some(Place {
        live: live.map(|(_, live)| live),
        owned: Some(below),
    })
}

/// Whether a key of a set of fields is that of an element: by its keys, of which the server may have added some, by its
/// value, or by its index.
fn names(key: &str, index: usize, value: &Value) -> bool {
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

/// What is owned of a value.
fn part(live: &Value, owned: &Value) -> Value {
    let fields = owned.as_object().filter(|fields| !fields.is_empty());
    match (live, fields) {
        (Value::Object(map), Some(fields)) => {
            let entries = map.iter().filter_map(|(key, value)| {
                let below = fields.get(&format!("f:{key}"))?;
                Some((key.clone(), part(value, below)))
            });
            Value::Object(entries.collect())
        }
        (Value::Array(list), Some(fields)) => {
            let elements = list.iter().enumerate().filter_map(|(index, value)| {
                let (_, below) = fields.iter().find(|(key, _)| names(key, index, value))?;
                Some(part(value, below))
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
        settle(manifest, live, Some(owned), &fields, &conditions).unwrap()
    }

    #[test]
    fn what_is_ours_is_said_again_and_what_is_not_is_left_out() {
        let manifest = json!({"spec": {"replicas": 3, "paused": true}, "never": 1});
        let live = json!({"spec": {"replicas": 5, "paused": true}});
        for (what, owned, wanted) in [
            (
                "somebody changed it",
                json!({"f:spec": {"f:paused": {}}}),
                json!({"paused": true}),
            ),
            (
                "nobody did, and the server writes it otherwise",
                json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}),
                json!({"replicas": 5, "paused": true}),
            ),
            (
                "all of it is ours",
                json!({"f:spec": {}}),
                json!({"replicas": 5, "paused": true}),
            ),
            ("nothing is", json!({"f:metadata": {}}), json!({"paused": true})),
        ] {
            let said = run(".spec.replicas", &manifest, &live, &owned);
            assert_eq!(said, json!({"spec": wanted, "never": 1}), "{what}");
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
    fn elements_of_lists_are_found_by_their_keys() {
        let manifest = json!({"list": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        let live = json!({"list": [{"name": "first", "image": "x"}, {"name": "b", "image": "2"},
            {"name": "a", "protocol": "TCP", "image": "3", "more": "theirs"}]});
        let owned = json!({"f:list": {
            r#"k:{"name":"a","protocol":"TCP"}"#: {".": {}, "f:name": {}, "f:image": {}},
            r#"k:{"name":"b"}"#: {".": {}, "f:name": {}}}});
        let said = run(".list[].image", &manifest, &live, &owned);
        assert_eq!(
            said,
            json!({"list": [{"name": "a", "image": "3"}, {"name": "b"}]})
        );
        // Of a value that is ignored as a whole, only what is ours is said.
        let said = run(".list", &manifest, &live, &owned);
        assert_eq!(
            said,
            json!({"list": [{"name": "b"}, {"name": "a", "image": "3"}]})
        );
        let said = run(".list[0]", &manifest, &live, &owned);
        assert_eq!(
            said,
            json!({"list": [{"name": "a", "image": "3"}, {"name": "b", "image": "1"}]})
        );
        let sets = json!({"list": ["a", "b"]});
        let said = run(".list", &sets, &sets, &json!({"f:list": {r#"v:"b""#: {}}}));
        assert_eq!(said, json!({"list": ["b"]}));
    }
}
