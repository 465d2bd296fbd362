//! `metadata.managedFields`: who owns which fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fieldset::Set;
use crate::http::escape_marks;

/// What tells one entry from another. Appliers keep their entry across API versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) manager: String,
    pub(super) applied: bool,
    /// Empty for appliers.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Key {
    /// Of somebody who writes: there is a name for those who give none.
    pub(super) fn new(manager: &str, applied: bool, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self::read(manager, applied, api_version, subresource)
    }

    /// Of an entry, as it is.
    fn read(manager: &str, applied: bool, api_version: &str, subresource: &str) -> Self {
        let api_version = if applied { "" } else { api_version };
        Self {
            manager: manager.to_owned(),
            applied,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// The text by which the real server tells entries apart, and by which it sorts them when there are too many.
    fn identifier(&self) -> String {
        let quoted = |text: &str| escape_marks(&Value::from(text).to_string());
        let operation = if self.applied { "Apply" } else { "Update" };
        let fields = [
            ("manager", self.manager.as_str()),
            ("operation", operation),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ];
        let fields = fields.iter().filter(|(_, text)| !text.is_empty());
        let fields: Vec<String> = fields
            .map(|(name, text)| format!("\"{name}\":{}", quoted(text)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    /// The manager as it stands in a conflict.
    pub(super) fn shown(&self) -> String {
        let mut out = crate::schema::quote(&self.manager);
        if !self.subresource.is_empty() {
            out.push_str(" with subresource ");
            out.push_str(&crate::schema::quote(&self.subresource));
        }
        if !self.applied {
            out.push_str(" using ");
            out.push_str(&self.api_version);
        }
        out
    }
}

/// One manager's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: Set,
    pub(super) api_version: String,
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers {
    pub(super) fields: BTreeMap<Key, Owned>,
    pub(super) times: BTreeMap<Key, String>,
}

impl Managers {
    /// Reads `metadata.managedFields`; malformed entries spoil the whole list.
    pub(super) fn decode(entries: Option<&Value>) -> Option<Self> {
        let mut out = Self::default();
        for entry in entries.and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let applied = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let key = Key::read(text("manager"), applied, text("apiVersion"), text("subresource"));
            let set = Set::decode(entry.get("fieldsV1").unwrap_or(&json!({})))?;
            // Of two entries of one manager the last one counts, with its time or without one.
            match entry.get("time").and_then(Value::as_str) {
                Some(time) => drop(out.times.insert(key.clone(), time.to_owned())),
                None => drop(out.times.remove(&key)),
            }
            out.fields.insert(
                key,
                Owned {
                    set,
                    api_version: text("apiVersion").to_owned(),
                },
            );
        }
        Some(out)
    }

    /// Writes `metadata.managedFields`, or removes it when nobody owns anything.
    pub(super) fn encode(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else { return };
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Some(metadata) = metadata.as_object_mut() else {
            return;
        };
        if self.fields.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut entries: Vec<(bool, i64, &Key, Value)> = Vec::new();
        for (key, owned) in &self.fields {
            let mut entry = Map::new();
            if !key.manager.is_empty() {
                entry.insert("manager".into(), key.manager.as_str().into());
            }
            entry.insert(
                "operation".into(),
                if key.applied { "Apply" } else { "Update" }.into(),
            );
            entry.insert("apiVersion".into(), owned.api_version.as_str().into());
            let time = self.times.get(key);
            if let Some(time) = time {
                entry.insert("time".into(), time.as_str().into());
            }
            entry.insert("fieldsType".into(), "FieldsV1".into());
            entry.insert("fieldsV1".into(), owned.set.encode());
            if !key.subresource.is_empty() {
                entry.insert("subresource".into(), key.subresource.as_str().into());
            }
            entries.push((!key.applied, seconds(time), key, Value::Object(entry)));
        }
        entries.sort_by(|a, b| {
            let order = |e: &(bool, i64, &Key, Value)| {
                let version =
                    e.3.get("apiVersion")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned();
                (e.0, e.1, e.2.manager.clone(), version, e.2.subresource.clone())
            };
            order(a).cmp(&order(b))
        });
        metadata.insert("managedFields".into(), entries.into_iter().map(|e| e.3).collect());
    }

    /// Folds the oldest updaters into one entry when there are too many.
    pub(super) fn cap(&mut self) {
        const MAX: usize = 10;
        let mut updaters: Vec<Key> = self.fields.keys().filter(|k| !k.applied).cloned().collect();
        let mut count = updaters.len();
        if count <= MAX {
            return;
        }
        updaters.sort_by_cached_key(|k| (seconds(self.times.get(k)), k.identifier()));
        let mut first: BTreeMap<String, Key> = BTreeMap::new();
        for key in updaters {
            if count <= MAX {
                break;
            }
            let Some(owned) = self.fields.get(&key).cloned() else {
                continue;
            };
            let bucket = Key::new("ancient-changes", false, &owned.api_version, "");
            let Some(oldest) = first.get(&owned.api_version) else {
                first.insert(owned.api_version.clone(), key);
                continue;
            };
            if !self.fields.contains_key(&bucket)
                && let Some(oldest) = self.fields.remove(&oldest.clone())
            {
                self.fields.insert(bucket.clone(), oldest);
            }
            self.fields.remove(&key);
            if let Some(all) = self.fields.get_mut(&bucket) {
                all.set = all.set.union(&owned.set);
            }
            // The time of the one that came last, or none if that had none.
            match self.times.get(&key).cloned() {
                Some(time) => drop(self.times.insert(bucket, time)),
                None => drop(self.times.remove(&bucket)),
            }
            count -= 1;
        }
    }
}

/// What is wrong with a list of owners, if anything.
pub fn owners_problem(entries: Option<&Value>) -> Option<String> {
    let list = entries.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |entry: &Value, name: &str| {
        let text = entry.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    if list
        .iter()
        .any(|entry| !matches!(text(entry, "operation").as_str(), "Apply" | "Update"))
    {
        return Some("operation must be `Apply` or `Update`".into());
    }
    if list.iter().any(|entry| text(entry, "apiVersion").is_empty()) {
        return Some("apiVersion must not be empty".into());
    }
    let odd = |entry: &Value| text(entry, "fieldsType") != "FieldsV1";
    if let Some((i, entry)) = list.iter().enumerate().find(|(_, entry)| odd(entry)) {
        let given = text(entry, "fieldsType");
        return Some(format!(
            "invalid fieldsType {given:?} in managed fields entry {i}"
        ));
    }
    if Managers::decode(entries).is_none() {
        return Some("error decoding versioned set".into());
    }
    None
}

fn seconds(time: Option<&String>) -> i64 {
    time.and_then(|t| t.parse::<Timestamp>().ok())
        .map_or(0, Timestamp::as_second)
}
