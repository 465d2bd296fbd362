//! Random objects, as people and controllers might write them.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A kind of objects, and what they are made of.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    pub path: String,
    #[serde(default)]
    pub scaled: bool,
    /// What the real server refuses of it is not sent to the other one.
    #[serde(default)]
    pub coarse: bool,
    pub status: Option<Value>,
    object: Value,
}

pub fn kinds() -> Vec<Kind> {
    serde_saphyr::from_str(include_str!("random_kinds.yaml")).unwrap()
}

pub fn definitions() -> Vec<Value> {
    serde_saphyr::from_str(include_str!("random_definitions.yaml")).unwrap()
}

pub struct Draw(StdRng);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    pub fn one<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// A value of a form: `field~`, `field~~`, `$one` and `$some` are as `random_kinds.yaml` says.
    pub fn value(&mut self, form: &Value) -> Value {
        match form {
            Value::Object(map) if map.contains_key("$one") => {
                let from = map["$one"].as_array().expect("a list");
                let one = self.one(from);
                self.value(&one)
            }
            Value::Object(map) if map.contains_key("$some") => {
                let mut from = map["$some"].as_array().expect("a list").clone();
                if self.chance(30) {
                    from.reverse();
                }
                from.retain(|_| self.chance(50));
                // Most lists of the built-in kinds may not be empty.
                if from.is_empty() && self.chance(80) {
                    from.push(map["$some"][0].clone());
                }
                from.iter().map(|item| self.value(item)).collect()
            }
            Value::Object(map) => {
                let mut out = Map::new();
                for (name, form) in map {
                    let bare = name.trim_end_matches('~');
                    let percent = [100, 50, 12][name.len() - bare.len()];
                    if self.chance(percent) {
                        out.insert(bare.into(), self.value(form));
                    }
                }
                out.into()
            }
            Value::Array(list) => list.iter().map(|item| self.value(item)).collect(),
            other => other.clone(),
        }
    }

    /// An object of a kind.
    pub fn object(&mut self, kind: &Kind, name: &str) -> Value {
        let texts = json!({"a~": {"$one": ["1", "2"]}, "b~": {"$one": ["1", "2"]}, "c~": "3"});
        let mut metadata = json!({"name": name, "labels~": texts, "annotations~": texts,
            "finalizers~~": {"$some": ["example.com/keep", "example.com/more"]}});
        if kind.path.contains("/namespaces/") {
            let owner = |name: &str, uid: &str| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
                    "blockOwnerDeletion~": {"$one": [true, false]}, "controller~~": {"$one": [true, false]}})
            };
            let owner = owner("kube-root-ca.crt", "${owner}");
            metadata["ownerReferences~~"] = json!([owner]);
        }
        let mut object = self.value(&kind.object);
        object["metadata"] = self.value(&metadata);
        object
    }

    /// An object that somebody made a mistake in, or who means to clear a field.
    pub fn disturb(&mut self, value: &mut Value) {
        let odd = [
            json!(null),
            json!({}),
            json!([]),
            json!(""),
            json!(null),
            json!(7),
            json!([null]),
        ];
        let mut at = value;
        for depth in 0.. {
            let inner: Vec<String> = match &*at {
                Value::Object(map) => map.keys().cloned().collect(),
                Value::Array(list) => (0..list.len()).map(|i| i.to_string()).collect(),
                _ => Vec::new(),
            };
            if inner.is_empty() || (depth > 0 && self.chance(15)) {
                *at = self.one(&odd);
                return;
            }
            let next = self.one(&inner);
            at = match at {
                Value::Object(map) => map.get_mut(&next),
                Value::Array(list) => next.parse::<usize>().ok().and_then(|i| list.get_mut(i)),
                _ => None,
            }
            .expect("what was found");
        }
    }

    /// A JSON patch of places that objects have or might have.
    pub fn json_patch(&mut self, object: &Value) -> Value {
        let mut places = Vec::new();
        paths(object, "", &mut places);
        places.push(("/metadata/labels/d".into(), "4".into()));
        let count = 1 + self.below(3);
        (0..count)
            .map(|_| {
                let op = self.one(&["add", "add", "replace", "remove", "test", "copy", "move"]);
                let (path, value) = self.one(&places);
                let (from, _) = self.one(&places);
                match op {
                    "remove" => json!({"op": op, "path": path}),
                    "copy" | "move" => json!({"op": op, "path": path, "from": from}),
                    _ => json!({"op": op, "path": path, "value": value}),
                }
            })
            .collect()
    }
}

fn paths(value: &Value, path: &str, out: &mut Vec<(String, Value)>) {
    if !path.is_empty() {
        out.push((path.to_owned(), value.clone()));
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let name = name.replace('~', "~0").replace('/', "~1");
                paths(value, &format!("{path}/{name}"), out);
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                paths(value, &format!("{path}/{i}"), out);
            }
            out.push((format!("{path}/-"), list.first().cloned().unwrap_or_default()));
        }
        _ => {}
    }
}
