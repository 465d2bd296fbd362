//! The way from client-side to server-side apply: what kubectl noted in an annotation it may take without force, and
//! the note is kept up to date.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::fieldset::Element;
use super::types::TypeRef;
use super::{Conflict, META, Manager, walk, without_owners};
use crate::http::escape_marks;
use crate::schema::Schema;

/// Whoever has another name wants nothing of this.
const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What all annotations may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn note(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations
        .get(ANNOTATION)?
        .as_str()
        .filter(|note| !note.is_empty())
}

/// The conflicts that remain: none about fields that still are what the manager's note says. All of them, if there is no
/// note that can be read.
pub(super) fn remaining(
    conflicts: Vec<Conflict>,
    live: &Value,
    manager: &Manager<'_>,
    schema: &Schema,
) -> Vec<Conflict> {
    let noted = note(live).filter(|_| manager.name == KUBECTL);
    let Some(own) = noted.and_then(|noted| unchanged(noted, live, manager, schema)) else {
        return conflicts;
    };
    let foreign = |conflict: &Conflict| !own.contains(&conflict.field);
    conflicts.into_iter().filter(foreign).collect()
}

/// The fields of the note that are in the object as noted.
fn unchanged(noted: &str, live: &Value, manager: &Manager<'_>, schema: &Schema) -> Option<HashSet<String>> {
    let noted: Value = serde_json::from_str(noted).ok()?;
    let ty = TypeRef::Root { schema, meta: &META };
    let live = without_owners(live);
    // A note about an object of another kind says nothing of this one.
    if noted.get("apiVersion")?.as_str()? != manager.api_version
        || noted.get("kind")?.as_str()? != live.get("kind")?.as_str()?
        || !walk::type_errors(&noted, ty).is_empty()
        || !walk::type_errors(&live, ty).is_empty()
    {
        return None;
    }
    let comparison = walk::compare(&noted, &live, ty);
    let same = walk::field_set(&noted, ty)
        .difference(&comparison.modified)
        .difference(&comparison.added)
        .difference(&comparison.removed);
    let mut fields = HashSet::new();
    same.each(&mut Vec::new(), &mut |path| {
        fields.insert(path.iter().map(Element::shown).collect());
    });
    Some(fields)
}

/// Notes the configuration where there was a note before.
pub(super) fn keep_note(object: &mut Value, config: &Value, manager: &Manager<'_>) {
    if manager.name != KUBECTL || note(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_of(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let text = escape_marks(&config.to_string()) + "\n";
    if let Some(annotations) = annotations_of(object) {
        annotations.insert(ANNOTATION.to_owned(), text.into());
        let length = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
        if annotations.iter().map(length).sum::<usize>() > MAX_ANNOTATIONS {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotations_of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object
        .get_mut("metadata")?
        .get_mut("annotations")?
        .as_object_mut()
}
