//! Pure: what a work asks for, in which order it is written and deleted, and what its record says afterwards.
//!
//! `spec + served kinds → manifests → delivery (waves of writes, prunes, revocations) → record`

pub mod config;
pub mod definitions;
pub mod delivery;
mod order;
pub mod rbac;
pub mod records;
#[cfg(test)]
mod tests;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use kube::core::GroupVersionKind;
use serde_json::Value;
use writ_api::work::{AppliedResource, ManifestResourceMeta, ManifestWorkSpec, UpdateStrategyType};
use writ_runtime::segment;

use super::model::{ObjectIdentity, PlannedManifest, ServedKinds, TargetObject};
use config::{is_owned, merge_configs};
use definitions::kind_from_definition;

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
pub fn check_addressable(gvk: &GroupVersionKind) -> Result<(), String> {
    if !gvk.group.is_empty() {
        segment::check("the group of apiVersion", &gvk.group)?;
    }
    segment::check("the version of apiVersion", &gvk.version)
}

/// Whether a record names an object that can exist. Any other is left alone: its name would become part of a URL, and
/// lead to an object that the gate never judged.
pub fn can_exist(record: &AppliedResource) -> bool {
    let is_plain_or_empty = |text: &str| text.is_empty() || segment::is_plain(text);
    is_plain_or_empty(&record.group)
        && segment::is_plain(&record.version)
        && segment::is_plain(&record.resource)
        && is_plain_or_empty(&record.namespace)
        && segment::is_plain(&record.name)
}

/// The manifests of a work, in the order of their ordinals.
pub fn manifests(spec: &ManifestWorkSpec, kinds: &ServedKinds) -> Vec<PlannedManifest> {
    let manifests = spec.workload.manifests.iter().map(|manifest| &manifest.0);
    let definitions: Vec<&Value> = manifests
        .clone()
        .filter(|manifest| is_written_definition(manifest, spec, kinds))
        .collect();
    manifests
        .enumerate()
        .map(|(ordinal, manifest)| plan_manifest(ordinal, manifest, spec, kinds, &definitions))
        .collect()
}

/// Whether a manifest is a definition that this work writes. A definition that is only read defines nothing.
fn is_written_definition(manifest: &Value, spec: &ManifestWorkSpec, kinds: &ServedKinds) -> bool {
    let Some(gvk) = gvk(manifest).filter(|gvk| gvk.kind == "CustomResourceDefinition") else {
        return false;
    };
    let Some(Ok(Some(kind))) = kinds.get(&gvk) else {
        return false;
    };
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str);
    let identity = ObjectIdentity {
        group: &gvk.group,
        resource: &kind.resource.plural,
        namespace: "",
        name: name.unwrap_or_default(),
    };
    let config = merge_configs(&spec.manifest_configs, identity);
    config.strategy.type_ != UpdateStrategyType::ReadOnly
}

fn plan_manifest(
    ordinal: usize,
    manifest: &Value,
    spec: &ManifestWorkSpec,
    kinds: &ServedKinds,
    definitions: &[&Value],
) -> PlannedManifest {
    let mut meta = ManifestResourceMeta {
        ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX),
        ..ManifestResourceMeta::default()
    };
    let Some(gvk) = gvk(manifest) else {
        return PlannedManifest {
            ordinal,
            rank: order::UNKNOWN,
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
    let target = plan_target(manifest, &gvk, &mut meta, spec, kinds, definitions);
    PlannedManifest {
        ordinal,
        rank: order::rank_of(&gvk.kind),
        meta,
        target,
    }
}

fn plan_target(
    manifest: &Value,
    gvk: &GroupVersionKind,
    meta: &mut ManifestResourceMeta,
    spec: &ManifestWorkSpec,
    kinds: &ServedKinds,
    definitions: &[&Value],
) -> Result<TargetObject, String> {
    if meta.name.is_empty() {
        return Err("name must be set in manifest".into());
    }
    check_addressable(gvk)?;
    segment::check("metadata.name", &meta.name)?;
    if !meta.namespace.is_empty() {
        segment::check("metadata.namespace", &meta.namespace)?;
    }
    let (kind, kind_to_come) = match kinds.get(gvk) {
        Some(Ok(Some(kind))) => (kind.clone(), false),
        Some(Err(error)) => return Err(error.clone()),
        Some(Ok(None)) | None => definitions
            .iter()
            .find_map(|definition| kind_from_definition(definition, gvk))
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
    let identity = ObjectIdentity {
        group: &gvk.group,
        resource: &kind.resource.plural,
        namespace: &meta.namespace,
        name: &meta.name,
    };
    let config = merge_configs(&spec.manifest_configs, identity);
    let owned = is_owned(spec.delete_option.as_ref(), identity)
        && config.strategy.type_ != UpdateStrategyType::ReadOnly;
    let object = without_server_fields(manifest, &meta.namespace);
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    serde_json::to_string(&config)
        .unwrap_or_default()
        .hash(&mut hasher);
    owned.hash(&mut hasher);
    Ok(TargetObject {
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
fn without_server_fields(manifest: &Value, namespace: &str) -> Value {
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
