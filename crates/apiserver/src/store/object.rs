//! One stored object: its JSON as bytes, and the few facts that indexes need.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::Digest;

/// Name of a table: `plural` or `plural.group`, as `kubectl` names a resource in full.
pub(crate) type TableId = Arc<str>;

/// A uid in 16 bytes.
pub(crate) type Uid = u128;

/// An object as it is stored. Immutable; a change makes a new one.
///
/// The JSON is kept as bytes: a read sends them as they are, and they take a tenth of the memory of a tree of values.
#[derive(Debug)]
pub(crate) struct Object {
    pub table: TableId,
    /// `namespace/name`, or the name alone: ordered as the real server orders its keys.
    pub key: Arc<str>,
    pub rv: u64,
    pub uid: Uid,
    pub owners: Box<[Uid]>,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    /// The JSON in pieces. It starts with `apiVersion` and `kind`, so that both can be left out or replaced without parsing.
    parts: Box<[Part]>,
    /// Where the rest of the fields starts in the first piece, at a comma or at the closing brace.
    rest: usize,
}

/// A piece of JSON.
#[derive(Debug)]
enum Part {
    Own(Bytes),
    /// A large field: all versions of the object, and all clusters of the process, hold the same bytes.
    Shared(Arc<[u8]>),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Fields from this size on are shared.
const LARGE: usize = 1024;

type Pool = HashMap<[u8; 32], Weak<[u8]>>;

/// One copy of each large field.
fn share(field: &[u8]) -> Arc<[u8]> {
    static POOL: LazyLock<Mutex<(Pool, usize)>> = LazyLock::new(Mutex::default);
    let key: [u8; 32] = sha2::Sha256::digest(field).into();
    let mut guard = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let (pool, limit) = &mut *guard;
    if let Some(found) = pool.get(&key).and_then(Weak::upgrade) {
        return found;
    }
    // Swept when it has doubled, so that sweeping costs little and what is gone does not pile up.
    if pool.len() > (*limit).max(1024) {
        pool.retain(|_, kept| kept.strong_count() > 0);
        *limit = pool.len() * 2;
    }
    let new: Arc<[u8]> = field.into();
    pool.insert(key, Arc::downgrade(&new));
    new
}

impl Object {
    /// Makes the stored form of `value`, which has its final resourceVersion.
    pub fn new(table: TableId, key: Arc<str>, rv: u64, value: &Value) -> Self {
        let metadata = value.get("metadata");
        let text = |name: &str| metadata.and_then(|m| m.get(name)).and_then(Value::as_str);
        let owners = metadata
            .and_then(|m| m.get("ownerReferences"))
            .and_then(Value::as_array)
            .map(|list| {
                list.iter()
                    .filter_map(|o| o.get("uid")?.as_str())
                    .map(uid_of)
                    .collect()
            })
            .unwrap_or_default();
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut json = head(field("apiVersion"), field("kind"));
        let rest = json.len();
        let mut parts = Vec::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            if name == "apiVersion" || name == "kind" {
                continue;
            }
            json.push(b',');
            append(&mut json, name);
            json.push(b':');
            let start = json.len();
            append(&mut json, value);
            if name != "metadata" && json.len() - start >= LARGE {
                let shared = share(json.get(start..).unwrap_or_default());
                json.truncate(start);
                parts.push(Part::Own(std::mem::take(&mut json).into_boxed_slice().into()));
                parts.push(Part::Shared(shared));
            }
        }
        json.push(b'}');
        parts.push(Part::Own(json.into_boxed_slice().into()));
        Self {
            table,
            key,
            rv,
            uid: uid_of(text("uid").unwrap_or_default()),
            owners,
            deleting: text("deletionTimestamp").is_some(),
            parts: parts.into(),
            rest,
        }
    }

    /// Reads back what was written to disk.
    pub fn from_disk(table: TableId, key: Arc<str>, json: &[u8]) -> Result<Self, serde_json::Error> {
        let value: Value = serde_json::from_slice(json)?;
        let rv = value
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .and_then(|rv| rv.parse().ok())
            .unwrap_or_default();
        Ok(Self::new(table, key, rv, &value))
    }

    /// The whole JSON. Without a copy, unless a part of it is shared.
    pub fn json(&self) -> Bytes {
        if let [Part::Own(bytes)] = &*self.parts {
            return bytes.clone();
        }
        let mut out = Vec::with_capacity(self.size());
        self.parts
            .iter()
            .for_each(|part| out.extend_from_slice(part.bytes()));
        out.into()
    }

    /// How long the JSON is.
    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| part.bytes().len()).sum()
    }

    /// The JSON with another `apiVersion`.
    pub fn json_as(&self, api_version: &str, kind: &str) -> Bytes {
        let mut json = head(api_version, kind);
        if self
            .parts
            .first()
            .is_some_and(|first| first.bytes().starts_with(&json))
        {
            return self.json();
        }
        self.rest(&mut json);
        json.into()
    }

    /// The JSON without `apiVersion` and `kind`, as the lists of built-in kinds hold it.
    pub fn json_bare(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        // The comma before the first field goes too; an object has at least metadata.
        let mut skip = self.rest + 1;
        for part in &self.parts {
            out.extend_from_slice(part.bytes().get(skip..).unwrap_or_default());
            skip = 0;
        }
    }

    /// Appends what follows `apiVersion` and `kind`.
    fn rest(&self, out: &mut Vec<u8>) {
        let mut skip = self.rest;
        for part in &self.parts {
            out.extend_from_slice(part.bytes().get(skip..).unwrap_or_default());
            skip = 0;
        }
    }

    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// Whether the object was stored in this version, without building the tree.
    pub fn is_stored_as(&self, api_version: &str) -> bool {
        let json = self.parts.first().map(Part::bytes).unwrap_or_default();
        json.strip_prefix(b"{\"apiVersion\":\"")
            .and_then(|rest| rest.strip_prefix(api_version.as_bytes()))
            .is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// The object as a tree. What was stored was a tree once, so this does not fail; if it did, null is what remains.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).unwrap_or_default()
    }

    /// The labels alone, without building the rest of the tree.
    pub fn labels(&self) -> Option<Map<String, Value>> {
        #[derive(Deserialize)]
        struct Outer {
            metadata: Inner,
        }
        #[derive(Deserialize)]
        struct Inner {
            labels: Option<Map<String, Value>>,
        }
        serde_json::from_slice::<Outer>(&self.json())
            .ok()?
            .metadata
            .labels
    }
}

fn head(api_version: &str, kind: &str) -> Vec<u8> {
    let mut json = Vec::with_capacity(512);
    json.extend_from_slice(b"{\"apiVersion\":");
    append(&mut json, api_version);
    json.extend_from_slice(b",\"kind\":");
    append(&mut json, kind);
    json
}

/// Appends JSON. Writing text and trees to memory does not fail.
fn append<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, value: &T) {
    drop(serde_json::to_writer(json, value));
}

/// Sixteen bytes for a uid. Ours are UUIDs; what a client wrote into an owner reference may be any text.
pub(crate) fn uid_of(text: &str) -> Uid {
    let mut value: u128 = 0;
    let mut digits = 0;
    for byte in text.bytes() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'-' => continue,
            _ => return hash_uid(text),
        };
        value = (value << 4) | u128::from(digit);
        digits += 1;
    }
    if digits == 32 { value } else { hash_uid(text) }
}

fn hash_uid(text: &str) -> Uid {
    let digest = sha2::Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(16)
        .fold(0, |all, byte| (all << 8) | u128::from(*byte))
}

/// A fresh random uid (UUID version 4) in its usual spelling.
pub(crate) fn new_uid() -> String {
    let raw: u128 = rand::random();
    let raw = (raw & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{raw:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// The key of an object in its table.
pub(crate) fn key_of(namespace: &str, name: &str) -> Arc<str> {
    if namespace.is_empty() {
        name.into()
    } else {
        format!("{namespace}/{name}").into()
    }
}
