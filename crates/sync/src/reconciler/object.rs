//! One declared object: its identity, what is applied for it, and whether a live object matches it.

use std::sync::Arc;

use kube::core::GroupVersionKind;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use writ_controller::{Name, ObjectId};

use crate::{
    model::{SyncId, SyncKind},
    names,
};

/// The annotation that names the sync that manages an object.
pub const MANAGER: &str = "configsync.gke.io/manager";
/// The annotation that says what happens to an object that is no longer declared: `detach` leaves it on the cluster.
pub const DELETION: &str = "client.lifecycle.config.k8s.io/deletion";
/// The annotation with a digest of the declared object. It changes when a field is removed from the source.
pub const DECLARED_HASH: &str = "writ.dev/declared-hash";
/// The annotations of a managed object, removed when the object is given up.
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
/// The labels of a managed object, removed when the object is given up.
pub const OUR_LABELS: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    names::PART_OF,
    "configsync.gke.io/declared-version",
];

/// The kind and the full name of an object for messages: `Role.rbac.authorization.k8s.io web/reader`.
pub fn full_name(id: &ObjectId) -> String {
    let dot = if id.group.is_empty() { "" } else { "." };
    format!("{}{dot}{} {}", id.kind, id.group, id.name)
}

/// An object as a file declares it.
#[derive(Clone, Debug)]
pub struct Raw {
    /// The file.
    pub path: Arc<str>,
    /// Its content.
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

    /// The kind.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// The declared namespace; empty if there is none.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// The group and the version.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version()
            .split_once('/')
            .unwrap_or(("", self.api_version()))
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.value.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }

    /// The identity of the object in a namespace.
    pub fn id(&self, namespace: &str) -> ObjectId {
        ObjectId {
            group: self.group_version().0.into(),
            kind: self.kind().into(),
            name: Name::new(namespace, self.name()),
        }
    }

    /// The kind with its group and version.
    pub fn gvk(&self) -> GroupVersionKind {
        let (group, version) = self.group_version();
        GroupVersionKind::gvk(group, version, self.kind())
    }
}

/// An object that the cluster must have.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its identity.
    pub id: ObjectId,
    /// Its version.
    pub version: String,
    /// The file that declares it; empty for an implied namespace.
    pub path: Arc<str>,
    /// The applied object, with the metadata of a managed object.
    pub value: Value,
    /// A digest of the applied object. The commit is not part of it.
    pub hash: String,
    /// Whether the object is created, and never changed afterwards.
    pub ignore_mutation: bool,
    /// Objects that are applied before it.
    pub depends_on: Vec<ObjectId>,
}

/// The origin of the objects of a sync, for their metadata.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The sync.
    pub id: &'a SyncId,
    /// The commit.
    pub commit: &'a str,
    /// The repository, branch and revision, as JSON.
    pub context: &'a str,
}

impl Declared {
    /// Adds the metadata of a managed object to the content of a file.
    pub fn new(raw: Raw, id: ObjectId, origin: &Origin<'_>) -> Self {
        let version = raw.group_version().1.to_owned();
        let ignore_mutation = raw.annotation("client.lifecycle.config.k8s.io/mutation") == Some("ignore");
        let depends_on = raw
            .annotation("config.kubernetes.io/depends-on")
            .map(parse_dependencies)
            .unwrap_or_default();
        let mut value = raw.value;
        clean(&mut value, &id);
        let path = raw.path;
        let sync = origin.id;
        let (group, kind, name) = (&id.group, id.kind.to_lowercase(), &id.name);
        let resource_id = if name.namespace.is_empty() {
            format!("{group}_{kind}_{}", name.name)
        } else {
            format!("{group}_{kind}_{}_{}", name.namespace, name.name)
        };
        let hash = {
            // The commit is left out: a new one does not cause a write of objects that it does not change.
            let mut digest = Sha256::new();
            digest.update(serde_json::to_vec(&value).unwrap_or_default());
            digest.update(path.as_bytes());
            digest.update(origin.context.as_bytes());
            names::hex(&digest.finalize(), 16)
        };
        set_entries(
            &mut value,
            "labels",
            &[
                ("app.kubernetes.io/managed-by", "configmanagement.gke.io"),
                (names::PART_OF, &names::apply_set(sync)),
                ("configsync.gke.io/declared-version", &version),
            ],
        );
        set_entries(
            &mut value,
            "annotations",
            &[
                ("configmanagement.gke.io/managed", "enabled"),
                ("configmanagement.gke.io/source-path", &path),
                ("configmanagement.gke.io/token", origin.commit),
                ("configsync.gke.io/git-context", origin.context),
                (MANAGER, &names::manager_value(sync)),
                ("configsync.gke.io/resource-id", &resource_id),
                ("config.k8s.io/owning-inventory", &names::inventory_id(sync)),
                (DECLARED_HASH, &hash),
            ],
        );
        Self {
            id,
            version,
            path,
            value,
            hash,
            ignore_mutation,
            depends_on,
        }
    }

    /// The kind with its group and version.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::gvk(&self.id.group, &self.version, &self.id.kind)
    }
}

/// Removes fields that the API server writes, and sets the namespace.
fn clean(value: &mut Value, id: &ObjectId) {
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
        if id.name.namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".into(), id.name.namespace.as_ref().into());
        }
    }
}

fn set_entries(value: &mut Value, field: &str, entries: &[(&str, &str)]) {
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

/// Parses `group/namespaces/NS/kind/name` and `group/kind/name`, separated by commas.
fn parse_dependencies(text: &str) -> Vec<ObjectId> {
    let id = |group: &str, namespace: &str, kind: &str, name: &str| ObjectId {
        group: group.into(),
        kind: kind.into(),
        name: Name::new(namespace, name),
    };
    text.split(',')
        .filter_map(|one| {
            let parts: Vec<&str> = one.trim().split('/').collect();
            match parts.as_slice() {
                [group, "namespaces", namespace, kind, name] => Some(id(group, namespace, kind, name)),
                [group, kind, name] => Some(id(group, "", kind, name)),
                _ => None,
            }
        })
        .collect()
}

/// Whether `have` contains everything in `want`. Additions by the server or by others do not matter.
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

/// Whether a live object is as declared. The commit that it was last applied from does not matter. Group and kind follow
/// from the watch that delivered the object; objects of a list lack these fields.
pub fn is_as_declared(live: &Value, declared: &Declared) -> bool {
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

/// Whether a sync may take over an object whose annotation says that `other` manages it.
pub fn may_take_over(id: &SyncId, other: Option<&str>) -> bool {
    match other {
        None => true,
        Some(other) if other == names::manager_value(id) => true,
        // A RootSync wins over a RepoSync.
        Some(other) => id.kind == SyncKind::Root && !other.starts_with(':'),
    }
}
