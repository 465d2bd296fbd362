//! The built-in kinds: what they are called, what may be done with them, how they are defaulted,
//! validated and printed.

pub(crate) mod approval;
pub(crate) mod autoscaler;
mod claim;
mod columns;
mod defaults;
mod job;
mod table;
#[cfg(test)]
mod tests;
mod validate;
mod warnings;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

pub use columns::{Column, SCALE, age};
pub use table::{TOKEN_REQUEST, kinds};
pub(crate) use validate::policy_types;
pub use warnings::{INGRESS_CLASS, STORAGE_CLASS};

use crate::schema::meta::NameRule;
use crate::schema::{Cause, Schema};

/// A built-in kind.
#[derive(Debug)]
pub struct Kind {
    /// The API group, empty for the core group.
    pub group: &'static str,
    /// The one version that is served.
    pub version: &'static str,
    /// The kind's name.
    pub kind: &'static str,
    /// The resource's name.
    pub plural: &'static str,
    /// The resource's name in the singular.
    pub singular: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for command lines.
    pub short_names: &'static [&'static str],
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// The verbs of the main resource.
    pub verbs: &'static [&'static str],
    /// Subresources by name.
    pub subresources: &'static [&'static str],
    /// Fields for field selectors beside `metadata.name` and `metadata.namespace`.
    pub selectable_fields: &'static [&'static str],
    /// How objects are named.
    pub name_rule: NameRule,
    /// Whether `metadata.generation` counts changes of everything but metadata and status.
    pub has_generation: bool,
    /// What `kubectl get` prints.
    pub columns: &'static [Column],
    /// Whether objects are stored. Reviews are answered and forgotten.
    pub stored: bool,
}

#[derive(Debug)]
struct Definitions {
    kinds: HashMap<String, String>,
    schemas: HashMap<String, Schema>,
    raw: serde_json::Map<String, Value>,
}

/// Parsed once per process, when the first server asks.
static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(|| {
    let document: Value = serde_json::from_slice(include_bytes!("schemas.json")).unwrap_or_default();
    let raw = document
        .get("definitions")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let kinds = document
        .get("kinds")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    Definitions {
        kinds: kinds
            .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
            .collect(),
        schemas: Schema::compile_definitions(&raw),
        raw,
    }
});

/// The schema of one OpenAPI definition, by its full name.
pub fn definition(name: &str) -> Option<Schema> {
    DEFINITIONS.schemas.get(name).cloned()
}

/// The reduced OpenAPI definitions: types and extensions without descriptions.
pub fn definitions() -> &'static serde_json::Map<String, Value> {
    &DEFINITIONS.raw
}

/// The schema of `ObjectMeta`.
pub fn object_meta() -> Schema {
    definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap_or_else(Schema::anything)
}

/// The built-in kind behind a resource.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    kinds()
        .iter()
        .find(|k| k.group == group && k.version == version && k.plural == plural)
}

impl Kind {
    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The name of the kind's OpenAPI definition.
    pub fn definition_name(&self) -> Option<&'static str> {
        DEFINITIONS
            .kinds
            .get(&format!("{}/{}", self.api_version(), self.kind))
            .map(String::as_str)
    }

    /// The kind's schema.
    pub fn schema(&self) -> Schema {
        self.definition_name()
            .and_then(definition)
            .unwrap_or_else(Schema::anything)
    }

    /// Fills in the kind's defaults and gives the object the form of its types, with the empty lists and maps that it was
    /// given: owners are found with them, and [`Schema::forget_empty`] takes them out.
    pub fn default(&self, object: &mut Value) {
        defaults::apply(self, object);
    }

    /// Sets what a new object begins with, after defaults and before admission: `status` and the like.
    pub fn prepare_create(&self, object: &mut Value, now: &str) {
        defaults::prepare_create(self, object, now);
    }

    /// What is said of an object beside its cells in a table.
    pub fn row_conditions(&self, object: &Value) -> Option<Value> {
        (self.kind == "Pod")
            .then(|| columns::conditions(object))
            .flatten()
    }

    /// The object in the version that rules and columns are written for.
    pub fn printable<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if !autoscaler::is_older(self) {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        autoscaler::to_stored(&mut object);
        Cow::Owned(object)
    }

    /// What a reader of a written object sees, after those who were asked about it.
    pub fn complete(&self, object: &mut Value) {
        if self.kind == "Job" {
            job::label(object);
        }
        defaults::complete(self, object);
    }

    /// Carries over what a writer may leave out of an update: addresses, ports, times of conditions.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, now: &str) {
        defaults::prepare_update(self, new, old, now);
    }

    /// What is wrong with an object of this kind, metadata included; `old` is there on updates.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        validate::validate(self, new, old)
    }

    /// What is told to those who write an object, though nothing is wrong with it.
    pub fn warnings(&self, object: &Value, is_new: bool) -> Vec<String> {
        warnings::of(self, object, is_new)
    }

    /// The value of a selectable field.
    pub fn field(&self, object: &Value, field: &str) -> Option<String> {
        let pointer = format!("/{}", field.replace('.', "/"));
        let value = object.pointer(&pointer);
        Some(match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(b)) => b.to_string(),
            Some(Value::Number(n)) => n.to_string(),
            _ if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".into(),
            _ if field == "status.replicas" => "0".into(),
            _ if field == "status.successful" => object
                .pointer("/status/succeeded")
                .and_then(Value::as_i64)
                .unwrap_or_default()
                .to_string(),
            _ if field == "source" && self.kind == "Event" => object
                .pointer("/source/component")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            _ => String::new(),
        })
    }

    /// Whether a field selector may name the field.
    pub fn selects_by(&self, field: &str) -> bool {
        field == "metadata.name"
            || (field == "metadata.namespace" && (self.namespaced || self.selectable_fields.is_empty()))
            || self.selectable_fields.contains(&field)
    }
}
