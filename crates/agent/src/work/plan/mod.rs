//! Pure: from a work's spec and the kinds that are served to what is applied, in which order, and what is pruned.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use kube::core::GroupVersionKind;
use serde_json::{Map, Value};
use writ_api::work::{AppliedResource, ManifestResourceMeta, ManifestWorkSpec, UpdateStrategyType};
use writ_runtime::segment;

use super::{
    config::{Config, Identity, owned},
    mapper::Kind,
    objects::Name,
    rank,
};

/// One manifest of a work.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its index in the spec.
    pub ordinal: usize,
    /// Lower ranks are applied first.
    pub rank: u16,
    /// What the status says about it.
    pub meta: ManifestResourceMeta,
    /// What to apply, or why that cannot be known.
    pub target: Result<Target, String>,
}

/// What a manifest asks for.
#[derive(Clone, Debug)]
pub struct Target {
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The manifest, without what a server sets.
    pub object: Value,
    /// Whether the object goes when the work goes.
    pub owned: bool,
    /// How it is written and reported.
    pub config: Config,
    /// Changes with everything above.
    pub hash: u64,
    /// Whether the definition of its kind comes with the same work and is not served yet.
    pub kind_to_come: bool,
}

impl Target {
    /// Group, resource, namespace and name.
    pub fn identity(&self) -> Identity<'_> {
        Identity {
            group: &self.kind.resource.group,
            resource: &self.kind.resource.plural,
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    /// Namespace and name.
    pub fn place(&self) -> Name {
        (self.namespace.as_str().into(), self.name.as_str().into())
    }

    /// As the AppliedManifestWork records it.
    pub fn applied(&self, uid: &str) -> AppliedResource {
        AppliedResource {
            group: self.kind.resource.group.clone(),
            version: self.kind.resource.version.clone(),
            resource: self.kind.resource.plural.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: uid.into(),
        }
    }

    /// Whether anything but a read is sent for it.
    pub fn written(&self) -> bool {
        self.config.strategy.type_ != UpdateStrategyType::ReadOnly
    }
}

/// The kind of a manifest, as its `apiVersion` and `kind` say.
pub fn gvk(manifest: &Value) -> Option<GroupVersionKind> {
    let text = |key: &str| {
        manifest
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Some(GroupVersionKind::gvk(group, version, kind))
}

/// Whether the server can be asked about this kind: its group and version become part of a URL.
pub fn addressable(gvk: &GroupVersionKind) -> Result<(), String> {
    if !gvk.group.is_empty() {
        segment::check("the group of apiVersion", &gvk.group)?;
    }
    segment::check("the version of apiVersion", &gvk.version)
}

/// Whether a record names an object that can exist. One that does not is left alone: its name would become part of a
/// URL, and lead to something that nobody judged.
pub fn can_exist(resource: &AppliedResource) -> bool {
    let optional = |text: &str| text.is_empty() || segment::is_plain(text);
    optional(&resource.group)
        && segment::is_plain(&resource.version)
        && segment::is_plain(&resource.resource)
        && optional(&resource.namespace)
        && segment::is_plain(&resource.name)
}

/// What the server said about a kind.
pub type Kinds = HashMap<GroupVersionKind, Result<Option<Arc<Kind>>, String>>;

/// The manifests of a work, in the order of their ordinals.
pub fn items(spec: &ManifestWorkSpec, kinds: &Kinds) -> Vec<Item> {
    let definitions: Vec<&Value> = spec
        .workload
        .manifests
        .iter()
        .map(|manifest| &manifest.0)
        .filter(|manifest| is_made(manifest, spec, kinds))
        .collect();
    spec.workload
        .manifests
        .iter()
        .enumerate()
        .map(|(ordinal, manifest)| item(ordinal, &manifest.0, spec, kinds, &definitions))
        .collect()
}

/// Whether a manifest is a definition that this work writes: one that is only read, or that nobody serves, defines
/// nothing.
fn is_made(manifest: &Value, spec: &ManifestWorkSpec, kinds: &Kinds) -> bool {
    let Some(gvk) = gvk(manifest).filter(|gvk| gvk.kind == "CustomResourceDefinition") else {
        return false;
    };
    let Some(Ok(Some(kind))) = kinds.get(&gvk) else {
        return false;
    };
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str);
    let identity = Identity {
        group: &gvk.group,
        resource: &kind.resource.plural,
        namespace: "",
        name: name.unwrap_or_default(),
    };
    let config = Config::of(&spec.manifest_configs, identity);
    config.strategy.type_ != UpdateStrategyType::ReadOnly
}

fn item(
    ordinal: usize,
    manifest: &Value,
    spec: &ManifestWorkSpec,
    kinds: &Kinds,
    definitions: &[&Value],
) -> Item {
    let mut meta = ManifestResourceMeta {
        ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
        ..ManifestResourceMeta::default()
    };
    let Some(gvk) = gvk(manifest) else {
        return Item {
            ordinal,
            rank: rank::UNKNOWN,
            meta,
            target: Err("the manifest has no apiVersion or no kind".into()),
        };
    };
    let text = |key: &str| {
        manifest
            .pointer(&format!("/metadata/{key}"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    meta.group.clone_from(&gvk.group);
    meta.version.clone_from(&gvk.version);
    meta.kind.clone_from(&gvk.kind);
    meta.name = text("name");
    meta.namespace = text("namespace");
    let target = target(manifest, &gvk, &mut meta, spec, kinds, definitions);
    Item {
        ordinal,
        rank: rank::of(&gvk.kind),
        meta,
        target,
    }
}

fn target(
    manifest: &Value,
    gvk: &GroupVersionKind,
    meta: &mut ManifestResourceMeta,
    spec: &ManifestWorkSpec,
    kinds: &Kinds,
    definitions: &[&Value],
) -> Result<Target, String> {
    if meta.name.is_empty() {
        return Err("name must be set in manifest".into());
    }
    addressable(gvk)?;
    segment::check("metadata.name", &meta.name)?;
    if !meta.namespace.is_empty() {
        segment::check("metadata.namespace", &meta.namespace)?;
    }
    let (kind, kind_to_come) = match kinds.get(gvk) {
        Some(Ok(Some(kind))) => (kind.clone(), false),
        Some(Err(error)) => return Err(error.clone()),
        Some(Ok(None)) | None => definitions
            .iter()
            .find_map(|definition| Kind::from_crd(definition, gvk))
            .map(|kind| (Arc::new(kind), true))
            .ok_or_else(|| {
                format!(
                    "the server doesn't have a resource type for kind {:?} in version {:?}",
                    gvk.kind,
                    gvk.api_version()
                )
            })?,
    };
    meta.resource.clone_from(&kind.resource.plural);
    if !kind.namespaced {
        meta.namespace.clear();
    } else if meta.namespace.is_empty() {
        return Err(format!(
            "{} {} lives in a namespace, but metadata.namespace is not set in manifest",
            gvk.kind, meta.name
        ));
    }
    let identity = Identity {
        group: &gvk.group,
        resource: &kind.resource.plural,
        namespace: &meta.namespace,
        name: &meta.name,
    };
    let config = Config::of(&spec.manifest_configs, identity);
    let owned =
        owned(spec.delete_option.as_ref(), identity) && config.strategy.type_ != UpdateStrategyType::ReadOnly;
    let object = clean(manifest, &meta.namespace);
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    serde_json::to_string(&config)
        .unwrap_or_default()
        .hash(&mut hasher);
    owned.hash(&mut hasher);
    Ok(Target {
        kind,
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        object,
        owned,
        config,
        hash: hasher.finish(),
        kind_to_come,
    })
}

/// The manifest without what a server sets, in the namespace that its kind allows.
fn clean(manifest: &Value, namespace: &str) -> Value {
    let mut object = manifest.clone();
    strip_null_timestamps(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in [
            "uid",
            "resourceVersion",
            "generation",
            "managedFields",
            "selfLink",
            "creationTimestamp",
        ] {
            metadata.remove(key);
        }
        if namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".into(), namespace.into());
        }
    }
    object
}

/// Go writes empty times as `null`; applied, they would be changes.
fn strip_null_timestamps(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("creationTimestamp") == Some(&Value::Null) {
                map.remove("creationTimestamp");
            }
            map.values_mut().for_each(strip_null_timestamps);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_null_timestamps),
        _ => {}
    }
}

/// The label and annotation keys that a manifest asks to remove, by a `-` at their end; they are taken out of it.
pub fn take_removals(object: &mut Value) -> Vec<(&'static str, String)> {
    let mut removals = Vec::new();
    for field in ["labels", "annotations"] {
        let Some(map) = object
            .get_mut("metadata")
            .and_then(|metadata| metadata.get_mut(field))
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        let marked: Vec<String> = map.keys().filter(|key| key.ends_with('-')).cloned().collect();
        for key in marked {
            map.remove(&key);
            removals.push((field, key.trim_end_matches('-').to_owned()));
        }
    }
    removals
}

/// A merge patch that removes those keys where the live object still has them.
pub fn removal_patch(live: &Value, removals: &[(&'static str, String)]) -> Option<Value> {
    let mut metadata = Map::new();
    for (field, key) in removals {
        let has = live
            .get("metadata")
            .and_then(|metadata| metadata.get(*field))
            .is_some_and(|map| map.get(key).is_some());
        if has {
            let entry = metadata
                .entry((*field).to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = entry {
                map.insert(key.clone(), Value::Null);
            }
        }
    }
    (!metadata.is_empty()).then(|| serde_json::json!({ "metadata": metadata }))
}

/// The objects that were applied before and that no manifest names any more; versions don't matter.
///
/// A manifest that cannot be mapped still names its object: nothing of its group that could be it is pruned.
pub fn prune(applied: &[AppliedResource], items: &[Item]) -> Vec<AppliedResource> {
    let mut named = BTreeSet::new();
    let mut unmapped = BTreeSet::new();
    for item in items {
        match &item.target {
            Ok(target) => {
                named.insert((
                    target.kind.resource.group.as_str(),
                    target.kind.resource.plural.as_str(),
                    target.namespace.as_str(),
                    target.name.as_str(),
                ));
            }
            Err(_) => {
                unmapped.insert((item.meta.group.as_str(), item.meta.name.as_str()));
            }
        }
    }
    applied
        .iter()
        .filter(|resource| {
            !named.contains(&(
                resource.group.as_str(),
                resource.resource.as_str(),
                resource.namespace.as_str(),
                resource.name.as_str(),
            )) && !unmapped.contains(&(resource.group.as_str(), resource.name.as_str()))
        })
        .cloned()
        .collect()
}
