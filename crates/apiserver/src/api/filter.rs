//! Which objects of a table a list or a watch shows.

use std::sync::Arc;

use serde_json::Value;

use super::Call;
use crate::registry::Resource;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{Failure, Result};
use crate::store::Object;

/// Namespace, labels and fields together.
pub(crate) struct Filter {
    pub namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Fields that are not in the key, so that the object must be read.
    deep: bool,
    resource: Arc<Resource>,
}

impl Filter {
    pub fn new(call: &Call) -> Result<Self> {
        let labels = LabelSelector::parse(call.query.get("labelSelector").unwrap_or_default())
            .map_err(Failure::bad_request)?;
        let mut wanted = call.query.get("fieldSelector").unwrap_or_default().to_owned();
        let named = call.target.watch && !call.target.name.is_empty();
        // A watch of one object by its path is a watch by its name.
        if named && wanted.is_empty() {
            wanted = format!("metadata.name={}", call.target.name);
        }
        let fields = FieldSelector::parse(&wanted).map_err(Failure::bad_request)?;
        let mut deep = false;
        for requirement in fields.requirements() {
            match requirement.field.as_str() {
                field if !call.resource.selects(&call.target.version, field) => {
                    return Err(Failure::bad_request(call.resource.unknown_field(field)));
                }
                "metadata.name" | "metadata.namespace" => {}
                _ => deep = true,
            }
        }
        if named && fields.exact("metadata.name") != Some(call.target.name.as_str()) {
            let why = "fieldSelector metadata.name doesn't match requested name";
            return Err(Failure::bad_request(why));
        }
        let namespace = (call.resource.namespaced && !call.target.namespace.is_empty())
            .then(|| call.target.namespace.clone());
        Ok(Self {
            namespace,
            labels,
            fields,
            deep,
            resource: call.resource.clone(),
        })
    }

    /// Whether everything in the namespace is shown.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether an object of any namespace is shown.
    pub fn matches(&self, object: &Object) -> bool {
        if self
            .namespace
            .as_ref()
            .is_some_and(|namespace| object.namespace() != namespace)
        {
            return false;
        }
        if !self.labels.is_everything() && !self.labels.matches(object.labels().as_ref()) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let mut value = if self.deep { object.value() } else { Value::Null };
        if self.deep {
            crate::registry::from_storage(&self.resource, &mut value);
        }
        self.fields.matches(|field| match field {
            "metadata.name" => Some(object.name().to_owned()),
            "metadata.namespace" => Some(object.namespace().to_owned()),
            path => match self.resource.builtin {
                Some(kind) => kind.field(&value, path),
                None => Some(field_text(&value, path)),
            },
        })
    }
}

/// A field as selectors see it: a missing one is empty text.
fn field_text(value: &Value, path: &str) -> String {
    let mut at = value;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        match at.get(part) {
            Some(next) => at = next,
            None => return String::new(),
        }
    }
    match at {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
