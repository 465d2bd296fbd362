//! Object metadata: what every object's `metadata` must look like.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::cause::{Cause, child, index};
use super::{Schema, names};

/// How objects of a kind are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain: the usual one.
    #[default]
    Subdomain,
    /// RFC 1123 label: namespaces.
    Label,
    /// RFC 1035 label: services.
    Dns1035,
    /// One path segment: RBAC kinds.
    PathSegment,
}

/// The schema of metadata.
pub(super) fn typed() -> &'static Schema {
    static META: LazyLock<Schema> = LazyLock::new(crate::builtin::object_meta);
    &META
}

/// What a typed decoder would refuse in the metadata of an object, described as it would.
pub(crate) fn decode_error(metadata: &Value) -> Option<String> {
    let found = match metadata {
        Value::Null => return None,
        Value::Object(_) => return typed().decode_error_of(metadata, "ObjectMeta"),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Some(format!(
        "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
    ))
}

impl NameRule {
    /// What is wrong with a name. A prefix may end in `-`, for `generateName` adds to it.
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        // A trailing dash of a generateName is masked, and with it what is before it, as the real server does.
        let head = name
            .strip_suffix('-')
            .and_then(|head| head.get(..head.len().checked_sub(1)?));
        let masked = match head {
            Some(head) if prefix => format!("{head}a"),
            _ => name.to_owned(),
        };
        match self {
            Self::Subdomain => names::dns_subdomain(&masked),
            Self::Label => names::dns_label(&masked),
            Self::Dns1035 => names::dns_1035_label(&masked),
            Self::PathSegment if prefix => names::path_segment_prefix(name),
            Self::PathSegment => names::path_segment(name),
        }
    }
}

/// All annotations of an object together may not be larger.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

pub(super) fn text<'a>(meta: &'a Value, name: &str) -> &'a str {
    meta.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Validates the metadata of a new object; a name has been generated already.
pub fn validate_create(meta: &Value, namespaced: bool, rule: NameRule, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let generate = text(meta, "generateName");
    if !generate.is_empty() {
        for problem in rule.problems(generate, true) {
            causes.push(Cause::invalid(
                child(path, "generateName"),
                &generate.into(),
                &problem,
            ));
        }
    }
    let name = text(meta, "name");
    if name.is_empty() {
        causes.push(Cause::required(
            child(path, "name"),
            "name or generateName is required",
        ));
    } else {
        for problem in rule.problems(name, false) {
            causes.push(Cause::invalid(child(path, "name"), &name.into(), &problem));
        }
    }
    let namespace = text(meta, "namespace");
    if namespaced {
        if namespace.is_empty() {
            causes.push(Cause::required(child(path, "namespace"), ""));
        } else {
            for problem in names::dns_label(namespace) {
                causes.push(Cause::invalid(
                    child(path, "namespace"),
                    &namespace.into(),
                    &problem,
                ));
            }
        }
    } else if !namespace.is_empty() {
        causes.push(Cause::forbidden(
            child(path, "namespace"),
            "not allowed on this type",
        ));
    }
    let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if generation < 0 {
        let field = child(path, "generation");
        causes.push(Cause::invalid(
            field,
            &generation.into(),
            "must be greater than or equal to 0",
        ));
    }
    causes.extend(common(meta, path));
    causes.extend(finalizers(meta, path));
    causes
}

/// Whether an update gives an object another name, or another beginning of one.
pub fn is_renamed(new: &Value, old: &Value) -> bool {
    ["name", "generateName"]
        .iter()
        .any(|name| new.get(name) != old.get(name))
}

/// Validates the metadata of an update.
pub fn validate_update(new: &Value, old: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.get("deletionTimestamp").is_some() {
        let list = |meta: &Value| -> Vec<String> {
            let entries = meta
                .get("finalizers")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            entries.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let before = list(old);
        let mut added: Vec<String> = list(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            added.sort();
            let quoted: Vec<String> = added.iter().map(|f| super::quote(f)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            causes.push(Cause::forbidden(child(path, "finalizers"), &detail));
        }
    }
    if text(new, "resourceVersion").is_empty() {
        let field = child(path, "resourceVersion");
        causes.push(Cause::invalid(
            field,
            &"".into(),
            "must be specified for an update",
        ));
    }
    let number = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if number(new) < number(old) {
        causes.push(Cause::invalid(
            child(path, "generation"),
            &number(new).into(),
            "must not be decremented",
        ));
    }
    for name in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (
            new.get(name).unwrap_or(&Value::Null),
            old.get(name).unwrap_or(&Value::Null),
        );
        let empty = |v: &Value| v.is_null() || v.as_str() == Some("");
        if new != old && !(empty(new) && empty(old)) {
            let shown = if new.is_null() && matches!(name, "name" | "namespace" | "uid") {
                &Value::String(String::new())
            } else {
                new
            };
            causes.push(Cause::invalid(child(path, name), shown, "field is immutable"));
        }
    }
    causes.extend(common(new, path));
    causes
}

fn common(meta: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let map = |name: &str| meta.get(name).and_then(Value::as_object);
    causes.extend(validate_labels(map("labels"), &child(path, "labels")));
    if let Some(annotations) = map("annotations") {
        let path = child(path, "annotations");
        let mut size = 0;
        for (key, value) in annotations {
            size += key.len() + value.as_str().map_or(0, str::len);
            for problem in names::qualified_name(&key.to_lowercase()) {
                causes.push(Cause::invalid(path.as_str(), &key.as_str().into(), &problem));
            }
        }
        if size > ANNOTATIONS_LIMIT {
            causes.push(Cause::too_long(
                path,
                i64::try_from(ANNOTATIONS_LIMIT).unwrap_or(i64::MAX),
            ));
        }
    }
    causes.extend(owners(
        meta.get("ownerReferences"),
        &child(path, "ownerReferences"),
    ));
    for (i, entry) in meta
        .get("managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = index(&child(path, "managedFields"), i);
        if !matches!(text(entry, "operation"), "Apply" | "Update") {
            let operation = text(entry, "operation").into();
            causes.push(Cause::invalid(
                child(&path, "operation"),
                &operation,
                "must be `Apply` or `Update`",
            ));
        }
        if !matches!(text(entry, "fieldsType"), "" | "FieldsV1") {
            let fields_type = text(entry, "fieldsType").into();
            causes.push(Cause::invalid(
                child(&path, "fieldsType"),
                &fields_type,
                "must be `FieldsV1`",
            ));
        }
        causes.extend(validate_field_manager(
            text(entry, "manager"),
            &child(&path, "manager"),
        ));
        if text(entry, "subresource").len() > 256 {
            causes.push(Cause::too_long(child(&path, "subresource"), 256));
        }
    }
    causes
}

/// Whether a person can see the character: no control, no mark that only changes others, no space but the plain one.
pub(crate) fn is_printable(c: char) -> bool {
    let space = c.is_whitespace() && c != ' ';
    let mark = matches!(u32::from(c),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x8E2 | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E
        | 0x2060..=0x2064 | 0x2066..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB | 0x1D173..=0x1D17A | 0xE0001
        | 0xE0020..=0xE007F);
    let private = matches!(u32::from(c), 0xE000..=0xF8FF | 0xF0000..=0x0010_FFFF);
    !(c.is_control() || space || mark || private)
}

/// Validates the name of a field manager.
pub fn validate_field_manager(manager: &str, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if manager.len() > 128 {
        causes.push(Cause::too_long(path, 128));
    }
    if let Some((i, c)) = manager.char_indices().find(|(_, c)| !is_printable(*c)) {
        let detail = format!(
            "should not contain control characters: invalid character U+{:04X} (at position {i})",
            u32::from(c)
        );
        causes.push(Cause::invalid(path, &manager.into(), &detail));
    }
    causes
}

/// Validates a map of labels.
pub fn validate_labels(labels: Option<&Map<String, Value>>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        for problem in names::qualified_name(key) {
            causes.push(Cause::invalid(path, &key.as_str().into(), &problem));
        }
        for problem in names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(path, value, &problem));
        }
    }
    causes
}

fn owners(owners: Option<&Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for owner in owners.and_then(Value::as_array).into_iter().flatten() {
        let version = text(owner, "apiVersion");
        if version.is_empty() || version.ends_with('/') || version.matches('/').count() > 1 {
            causes.push(Cause::invalid(
                child(path, "apiVersion"),
                &version.into(),
                "version must not be empty",
            ));
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                causes.push(Cause::invalid(child(path, name), &"".into(), "must not be empty"));
            }
        }
        if version == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid(path, owner, detail));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let current = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                );
                causes.push(Cause::invalid(path, owners.unwrap_or(&Value::Null), &detail));
            } else {
                controller = Some(current);
            }
        }
    }
    causes
}

/// Validates the names of finalizers.
pub fn finalizers(meta: &Value, path: &str) -> Vec<Cause> {
    let path = child(path, "finalizers");
    let mut causes = Vec::new();
    let list: Vec<&str> = meta
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for finalizer in &list {
        for problem in names::qualified_name(finalizer) {
            causes.push(Cause::invalid(path.as_str(), &(*finalizer).into(), &problem));
        }
    }
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(path, &list.into(), detail));
    }
    causes
}
