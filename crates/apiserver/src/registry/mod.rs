//! Which resources are served: the built-in ones, and those of CustomResourceDefinitions.
//!
//! A snapshot is immutable and swapped as a whole, so a request sees one consistent set. Built-in resources, and custom
//! resources whose definitions are equal, are shared by all servers of a process.

mod builtin_kind;
mod crd;
mod shared;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use builtin_kind::token_request;
pub(crate) use crd::{
    CrdProblem, accept_names, established, from_crd, has_condition, scale_columns, set_condition,
};

use crate::builtin::{self, Kind, autoscaler};
use crate::go_numbers::strip_whole_floats;
use crate::schema::Schema;
use crate::ssa::{Others, Variant};
use crate::store::TableId;

/// The verbs of custom resources, in the order in which discovery lists them.
pub(crate) const CUSTOM_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// A column of a table for people.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    /// Where the value is, in the JSONPath dialect of Kubernetes without braces.
    pub path: String,
}

impl Column {
    fn new(name: &str, kind: &str, description: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: String::new(),
            description: description.to_owned(),
            priority: 0,
            path: path.to_owned(),
        }
    }
}

/// Where `/scale` finds its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub spec: String,
    pub status: String,
    pub selector: Option<String>,
}

/// One served (or only stored) version of a resource.
pub(crate) struct Version {
    pub name: String,
    pub served: bool,
    pub deprecated: Option<String>,
    pub schema: Option<Arc<Schema>>,
    pub status: bool,
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// Field selectors beyond name and namespace, as paths with a leading dot.
    pub selectable: Vec<String>,
}

const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";

/// A resource.
pub(crate) struct Resource {
    pub table: TableId,
    pub group: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// In the order of preference.
    pub versions: Vec<Version>,
    /// Version in which objects are stored.
    pub storage: String,
    /// `None` for those of a CustomResourceDefinition.
    pub builtin: Option<&'static Kind>,
    /// Verbs of the resource itself, as discovery lists them.
    pub verbs: &'static [&'static str],
    /// Whether versions have schemas of their own, so that an object is not the same in all of them.
    pub differing: bool,
    /// How owners of each version see an object, where there are several versions.
    pub variants: Vec<Variant>,
}

impl Resource {
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions
            .iter()
            .find(|version| version.name == name && version.served)
    }

    /// The version, served or not, that an `apiVersion` names.
    pub fn stored_version(&self, api_version: &str) -> Option<&Version> {
        let mut versions = self.versions.iter();
        versions.find(|version| self.api_version(&version.name) == api_version)
    }

    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// The versions in which fields of such an object may be owned.
    pub fn owners_versions(&self) -> Vec<String> {
        let versions = self.versions.iter();
        let mut versions: Vec<String> = versions.map(|version| self.api_version(&version.name)).collect();
        if &*self.table == AUTOSCALERS {
            versions.extend([autoscaler::OLDER, autoscaler::NEWER].map(|version| self.api_version(version)));
        }
        versions
    }

    /// How those see an object who wrote in another version than this one, where that may have other fields.
    pub fn variants(&self, version: &str) -> &[Variant] {
        if &*self.table == AUTOSCALERS {
            autoscaler::variants(version)
        } else {
            &self.variants
        }
    }

    /// Whether this is a built-in resource in a version that it is not stored in. There is one for each version then.
    pub fn is_second(&self) -> bool {
        self.builtin.is_some_and(|kind| kind.version != self.storage)
    }

    /// What becomes of owners of other versions.
    pub fn other_owners(&self) -> Others {
        if self.builtin.is_some() {
            Others::Forgotten
        } else {
            Others::Fatal
        }
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

/// All resources at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// By group, then plural.
    resources: BTreeMap<String, BTreeMap<String, Arc<Resource>>>,
    /// Built-in ones in versions that they are not stored in.
    seconds: Vec<Arc<Resource>>,
    tables: BTreeMap<TableId, Arc<Resource>>,
    /// The resourceVersion since which custom resources are what they are now.
    since: BTreeMap<TableId, u64>,
}

impl Snapshot {
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let first = self.resources.get(group)?.get(plural)?;
        let is_it = |resource: &&Arc<Resource>| resource.version(version).is_some();
        let mut seconds = self.seconds.iter().filter(|second| second.table == first.table);
        Some(first).filter(is_it).or_else(|| seconds.find(is_it))
    }

    /// Whether a group has built-in resources.
    pub fn is_builtin(&self, group: &str) -> bool {
        self.group(group).any(|resource| resource.builtin.is_some())
    }

    /// The resource of a kind in a version.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.resources
            .get(group)
            .into_iter()
            .flat_map(BTreeMap::values)
            .chain(self.seconds.iter().filter(|second| second.group == group))
            .find(|resource| resource.kind == kind && resource.version(version).is_some())
    }

    pub fn by_table(&self, table: &str) -> Option<&Arc<Resource>> {
        self.tables.get(table)
    }

    /// Objects that are not newer than this may have been stored under another schema.
    pub fn since(&self, table: &str) -> u64 {
        self.since.get(table).copied().unwrap_or_default()
    }

    /// All resources, in all their versions.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources
            .values()
            .flat_map(BTreeMap::values)
            .chain(&self.seconds)
    }

    /// Those of a group, in all their versions.
    pub fn group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        let seconds = self.seconds.iter().filter(move |second| second.group == group);
        self.resources
            .get(group)
            .into_iter()
            .flat_map(BTreeMap::values)
            .chain(seconds)
    }

    /// Groups with their served versions, best first.
    pub fn groups(&self) -> Vec<(String, Vec<String>)> {
        self.resources
            .keys()
            .map(|group| {
                let mut versions: Vec<String> = Vec::new();
                for resource in self.group(group) {
                    for version in resource.versions.iter().filter(|version| version.served) {
                        if !versions.contains(&version.name) {
                            versions.push(version.name.clone());
                        }
                    }
                }
                versions.sort_by(|a, b| compare_versions(b, a));
                (group.clone(), versions)
            })
            .filter(|(_, versions)| !versions.is_empty())
            .collect()
    }

    fn add(&mut self, resource: Arc<Resource>) {
        if resource.is_second() {
            self.seconds.push(resource);
            return;
        }
        self.tables.insert(resource.table.clone(), resource.clone());
        self.resources
            .entry(resource.group.clone())
            .or_default()
            .insert(resource.plural.clone(), resource);
    }
}

/// The resources of one server.
pub(crate) struct Registry {
    current: ArcSwap<Snapshot>,
    changes: watch::Sender<()>,
}

impl Registry {
    pub fn new() -> Self {
        Self {
            current: ArcSwap::new(shared::builtin()),
            changes: watch::Sender::new(()),
        }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Replaces all custom resources.
    pub fn set_custom<'a>(&self, custom: impl Iterator<Item = &'a (Arc<Resource>, u64)>) {
        let base = shared::builtin();
        let mut next = Snapshot {
            resources: base.resources.clone(),
            tables: base.tables.clone(),
            seconds: base.seconds.clone(),
            since: BTreeMap::new(),
        };
        for (resource, since) in custom {
            next.since.insert(resource.table.clone(), *since);
            next.add(resource.clone());
        }
        self.current.store(Arc::new(next));
        self.changes.send_replace(());
    }

    /// A signal that fires when custom resources have become others.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

/// Whether a definition is of a group that has built-in resources. It is accepted, but nothing is served for it: what is built in
/// stays what it is, with all that is stored of it.
pub(crate) fn is_shadowed(definition: &str) -> bool {
    let (_, group) = definition.split_once('.').unwrap_or_default();
    shared::builtin().is_builtin(group)
}

/// Kubernetes' order of version names: `v2` > `v1` > `v1beta2` > `v1beta1` > `v1alpha1` > others by name.
pub(crate) fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    fn parse(name: &str) -> Option<(u8, u64, u64)> {
        let rest = name.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let major = major.parse().ok()?;
        if rest.is_empty() {
            return Some((2, major, 0));
        }
        let (rank, minor) = rest
            .strip_prefix("beta")
            .map(|minor| (1, minor))
            .or_else(|| rest.strip_prefix("alpha").map(|minor| (0, minor)))?;
        Some((rank, major, minor.parse().ok()?))
    }
    match (parse(a), parse(b)) {
        (Some(x), Some(y)) => x.cmp(&y),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Whether stored objects differ from those this resource shows.
pub(crate) fn must_convert(resource: &Resource) -> bool {
    resource.is_second() || (resource.group == "events.k8s.io" && resource.builtin.is_some())
}

/// The two spellings of an Event: the old one, which is stored, and that of `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(value: &mut Value, api_version: &str, names: impl Iterator<Item = (&'static str, &'static str)>) {
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
        for (from, to) in names {
            if let Some(field) = map.remove(from) {
                map.insert(to.to_owned(), field);
            }
        }
    }
}

/// From one spelling of an Event to the other, if the groups are those of events.
pub(crate) fn convert_event(from: &str, to: &str, value: &mut Value) {
    match (from, to) {
        ("", "events.k8s.io") => {
            rename(value, "events.k8s.io/v1", EVENT_FIELDS.into_iter());
            if let Some(map) = value.as_object_mut() {
                map.retain(|name, value| !name.starts_with("reporting") || value.as_str() != Some(""));
            }
        }
        ("events.k8s.io", "") => {
            rename(value, "v1", EVENT_FIELDS.into_iter().map(|(old, new)| (new, old)));
            // The old spelling always has these.
            if let Some(map) = value.as_object_mut() {
                for name in ["reportingComponent", "reportingInstance"] {
                    map.entry(name).or_insert_with(|| "".into());
                }
            }
        }
        _ => {}
    }
}

/// From the stored form to the one that the resource shows.
pub(crate) fn from_storage(resource: &Resource, value: &mut Value) {
    if resource.is_second() {
        autoscaler::to_older(value);
    } else if must_convert(resource) {
        convert_event("", &resource.group, value);
    }
}

/// From the form that the resource shows to the stored one.
pub(crate) fn to_storage(resource: &Resource, value: &mut Value) {
    if resource.is_second() {
        autoscaler::to_stored(value);
        // What is stored is read with the defaults of its version.
        if let Some(kind) = builtin::find(&resource.group, &resource.storage, &resource.plural) {
            kind.default(value);
            kind.schema().forget_empty(value);
        }
        return;
    }
    if must_convert(resource) {
        convert_event(&resource.group, "", value);
        return;
    }
    let storage = resource.api_version(&resource.storage);
    if resource.differing
        && let Some(schema) = resource
            .stored_version(&storage)
            .and_then(|version| version.schema.as_ref())
    {
        schema.prune(value);
        schema.prune_nulls(value);
    }
    if resource.builtin.is_none() {
        strip_whole_floats(value);
    }
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), storage.into());
    }
}

impl Resource {
    /// Whether a field selector may name the field.
    pub fn selects(&self, version: &str, field: &str) -> bool {
        if let Some(kind) = self.builtin {
            return kind.selects_by(field);
        }
        matches!(field, "metadata.name" | "metadata.namespace")
            || self.version(version).is_some_and(|version| {
                version
                    .selectable
                    .iter()
                    .any(|path| path.strip_prefix('.').unwrap_or(path) == field)
            })
    }

    /// What is said about a field that selectors may not name.
    pub fn unknown_field(&self, field: &str) -> String {
        if self.builtin.is_some_and(|kind| kind.selectable_fields.is_empty()) {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {field}")
        }
    }
}
