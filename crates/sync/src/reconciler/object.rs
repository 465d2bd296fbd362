//! One declared object: who it is, what is asked of it, and in which order it comes.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use writ_api::kpt::ObjMetadata;

use crate::{
    model::{SyncId, SyncKind},
    names,
};

/// Which sync manages an object.
pub const MANAGER: &str = "configsync.gke.io/manager";
/// What happens to an object when it is not declared any more: `detach` leaves it.
pub const DELETION: &str = "client.lifecycle.config.k8s.io/deletion";
/// A digest of what was declared: tells that a field was taken out of the source.
pub const DECLARED_HASH: &str = "writ.dev/declared-hash";
/// The annotations that are ours, taken away when an object is given up.
pub const OUR_ANNOTATIONS: [&str; 8] = [
    MANAGER,
    DECLARED_HASH,
    "configmanagement.gke.io/managed",
    "configmanagement.gke.io/source-path",
    "configmanagement.gke.io/token",
    "configsync.gke.io/git-context",
    "configsync.gke.io/resource-id",
    "config.k8s.io/owning-inventory",
];
/// The labels that are ours.
pub const OUR_LABELS: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    names::PART_OF,
    "configsync.gke.io/declared-version",
];

/// An object, whatever its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for an object of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// As an inventory holds it.
    pub fn inventory(&self) -> ObjMetadata {
        ObjMetadata {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }
}

impl From<ObjMetadata> for Key {
    fn from(object: ObjMetadata) -> Self {
        Self {
            group: object.group,
            kind: object.kind,
            namespace: object.namespace,
            name: object.name,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} ", self.kind, self.group)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object as a file declares it.
#[derive(Clone, Debug)]
pub struct Raw {
    /// The file.
    pub path: Arc<str>,
    /// What is in it.
    pub value: Value,
}

impl Raw {
    fn text(&self, pointer: &str) -> &str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// The namespace that it declares.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// The group and the version.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version()
            .split_once('/')
            .unwrap_or(("", self.api_version()))
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.value.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }

    /// Who it is, in that namespace.
    pub fn key(&self, namespace: &str) -> Key {
        Key {
            group: self.group_version().0.to_owned(),
            kind: self.kind().to_owned(),
            namespace: namespace.to_owned(),
            name: self.name().to_owned(),
        }
    }
}

/// An object that shall be in the cluster.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Who it is.
    pub key: Key,
    /// Its version.
    pub version: String,
    /// The file that declares it.
    pub path: Arc<str>,
    /// What is applied, our metadata included.
    pub value: Value,
    /// A digest of what is applied.
    pub hash: String,
    /// Whether it is left alone once it is there.
    pub ignore_mutation: bool,
    /// The objects that must be applied before it.
    pub depends_on: Vec<Key>,
}

/// Where the objects of a sync come from, for their metadata.
pub struct Origin<'a> {
    /// The sync.
    pub id: &'a SyncId,
    /// The commit.
    pub commit: &'a str,
    /// The repository, branch and revision, as JSON.
    pub context: &'a str,
}

impl Declared {
    /// Adds our metadata to what a file declares.
    pub fn new(raw: Raw, key: Key, origin: &Origin<'_>) -> Self {
        let version = raw.group_version().1.to_owned();
        let ignore_mutation = raw.annotation("client.lifecycle.config.k8s.io/mutation") == Some("ignore");
        let depends_on = raw
            .annotation("config.kubernetes.io/depends-on")
            .map(dependencies)
            .unwrap_or_default();
        let mut value = raw.value;
        clean(&mut value, &key);
        let path = raw.path;
        let id = origin.id;
        let resource_id = format!(
            "{}_{}_{}{}",
            key.group,
            key.kind.to_lowercase(),
            if key.namespace.is_empty() {
                String::new()
            } else {
                format!("{}_", key.namespace)
            },
            key.name
        );
        let hash = {
            // Not the commit: an object that did not change is not written for a new one.
            let mut digest = Sha256::new();
            digest.update(serde_json::to_vec(&value).unwrap_or_default());
            digest.update(path.as_bytes());
            digest.update(origin.context.as_bytes());
            names::hex(&digest.finalize(), 16)
        };
        put(
            &mut value,
            "labels",
            &[
                ("app.kubernetes.io/managed-by", "configmanagement.gke.io"),
                (names::PART_OF, &names::apply_set(id)),
                ("configsync.gke.io/declared-version", &version),
            ],
        );
        put(
            &mut value,
            "annotations",
            &[
                ("configmanagement.gke.io/managed", "enabled"),
                ("configmanagement.gke.io/source-path", &path),
                ("configmanagement.gke.io/token", origin.commit),
                ("configsync.gke.io/git-context", origin.context),
                (MANAGER, &names::manager_value(id)),
                ("configsync.gke.io/resource-id", &resource_id),
                ("config.k8s.io/owning-inventory", &names::inventory_id(id)),
                (DECLARED_HASH, &hash),
            ],
        );
        Self {
            key,
            version,
            path,
            value,
            hash,
            ignore_mutation,
            depends_on,
        }
    }
}

/// Takes out what only the API server writes, and settles the namespace.
fn clean(value: &mut Value, key: &Key) {
    let Some(object) = value.as_object_mut() else {
        return;
    };
    object.remove("status");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "creationTimestamp",
            "deletionTimestamp",
            "generation",
            "managedFields",
            "resourceVersion",
            "selfLink",
            "uid",
        ] {
            metadata.remove(field);
        }
        if key.namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".into(), key.namespace.clone().into());
        }
    }
}

fn put(value: &mut Value, field: &str, entries: &[(&str, &str)]) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let map = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    if let Some(map) = map.as_object_mut() {
        for (key, text) in entries {
            map.insert((*key).to_owned(), Value::String((*text).to_owned()));
        }
    }
}

/// Reads `group/namespaces/NS/kind/name` and `group/kind/name`, separated by commas.
fn dependencies(text: &str) -> Vec<Key> {
    let key = |group: &str, namespace: &str, kind: &str, name: &str| Key {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    text.split(',')
        .filter_map(|one| {
            let parts: Vec<&str> = one.trim().split('/').collect();
            match parts.as_slice() {
                [group, "namespaces", namespace, kind, name] => Some(key(group, namespace, kind, name)),
                [group, kind, name] => Some(key(group, "", kind, name)),
                _ => None,
            }
        })
        .collect()
}

/// In which order kinds come: what others need goes first, what judges others goes last.
pub fn rank(key: &Key) -> u8 {
    match (key.group.as_str(), key.kind.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 0,
        ("", "Namespace") => 1,
        (
            "",
            "ConfigMap"
            | "LimitRange"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "ResourceQuota"
            | "Secret"
            | "Service"
            | "ServiceAccount",
        )
        | ("rbac.authorization.k8s.io" | "scheduling.k8s.io" | "storage.k8s.io", _) => 2,
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => 4,
        _ => 3,
    }
}

/// Puts objects in groups: everything in a group can be applied at once, after the groups before it.
///
/// Objects that wait for each other in a circle are returned on their own.
pub fn waves(objects: &[&Declared]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let at: HashMap<&Key, usize> = objects.iter().enumerate().map(|(i, o)| (&o.key, i)).collect();
    let mut level: Vec<usize> = objects.iter().map(|o| usize::from(rank(&o.key))).collect();
    // Each object is looked at once, when nothing that it waits for is left: a long chain, or a circle of all that a
    // repository can hold, takes no longer than the objects alone.
    let mut waits: Vec<usize> = vec![0; objects.len()];
    let mut after: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, object) in objects.iter().enumerate() {
        for &before in object.depends_on.iter().filter_map(|key| at.get(key)) {
            after.entry(before).or_default().push(index);
            if let Some(waits) = waits.get_mut(index) {
                *waits += 1;
            }
        }
    }
    let free = |waits: &[usize]| -> Vec<usize> {
        let all = waits.iter().enumerate();
        all.filter(|(_, waits)| **waits == 0).map(|(i, _)| i).collect()
    };
    let mut ready = free(&waits);
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    while let Some(index) = ready.pop() {
        let own = level.get(index).copied().unwrap_or_default();
        groups.entry(own).or_default().push(index);
        for &later in after.get(&index).into_iter().flatten() {
            if let (Some(level), Some(waits)) = (level.get_mut(later), waits.get_mut(later)) {
                *level = (*level).max(own + 1);
                *waits -= 1;
                if *waits == 0 {
                    ready.push(later);
                }
            }
        }
    }
    let stuck = waits.iter().enumerate().filter(|(_, waits)| **waits > 0);
    (groups.into_values().collect(), stuck.map(|(i, _)| i).collect())
}

/// Whether everything in `want` is in `have`. What the server or others added does not matter.
pub fn covers(have: &Value, want: &Value) -> bool {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => want.iter().all(|(key, want)| match have.get(key) {
            Some(have) => covers(have, want),
            None => want.is_null() || want.as_object().is_some_and(Map::is_empty),
        }),
        (Value::Array(have), Value::Array(want)) => {
            have.len() == want.len() && have.iter().zip(want).all(|(have, want)| covers(have, want))
        }
        (have, want) => have == want,
    }
}

/// Whether a live object is as declared. The commit it was last applied from does not matter, and what kind it is was
/// settled by the watch that showed it: in a list, objects do not say.
pub fn settled(live: &Value, declared: &Declared) -> bool {
    let mut want = declared.value.clone();
    if let Some(object) = want.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    if let Some(annotations) = want
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove("configmanagement.gke.io/token");
    }
    covers(live, &want)
}

/// Whether a sync may take an object that says it is managed by `other`.
pub fn may_take(id: &SyncId, other: Option<&str>) -> bool {
    match other {
        None => true,
        Some(other) if other == names::manager_value(id) => true,
        // A RootSync wins over a RepoSync.
        Some(other) => id.kind == SyncKind::Root && !other.starts_with(':'),
    }
}
