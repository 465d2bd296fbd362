//! Who owns the one number of a Scale, told from the owners of the object behind it, and back.
//!
//! The real server keeps the books of a Scale apart: it shows each owner of the number as an owner of the
//! Scale, lets the write change those, and carries the outcome back. Its ways are kept, the odd ones too: an
//! updater that keeps the number gets a second entry, without a time, because updaters are told apart by their
//! API version and that of the Scale is another.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fieldset::{Element, Set};
use super::managed::{Key, Managers, Owned};

/// The API version of every Scale.
pub const SCALE_VERSION: &str = "autoscaling/v1";

/// Where the number is, by the API version that an owner wrote; none where that version has no scale.
pub type ReplicasPaths = BTreeMap<String, Option<String>>;

fn elements(path: &str) -> Vec<Element> {
    let names = path.trim_start_matches('.').split('.');
    names.map(|name| Element::Field(name.to_owned())).collect()
}

fn single(path: &[Element]) -> Set {
    let mut set = Set::default();
    set.insert(path);
    set
}

fn entries(object: &Value) -> Option<Managers> {
    Managers::decode(object.pointer("/metadata/managedFields"))
}

/// Gives a Scale its owners: those who own the number in the object.
pub fn owners_of_scale(object: &Value, scale: &mut Value, paths: &ReplicasPaths) {
    let managers = entries(object).unwrap_or_default();
    let mut out = Managers::default();
    for (key, owned) in &managers.fields {
        let path = paths.get(&owned.api_version).and_then(Option::as_deref);
        if !path.is_some_and(|path| owned.set.has_path(&elements(path))) {
            continue;
        }
        let shown = Key::new(&key.manager, key.applied, SCALE_VERSION, &key.subresource);
        if let Some(time) = managers.times.get(key) {
            out.times.insert(shown.clone(), time.clone());
        }
        let set = single(&elements("spec.replicas"));
        let api_version = SCALE_VERSION.to_owned();
        out.fields.insert(shown, Owned { set, api_version });
    }
    out.encode(scale);
}

/// Gives the object the owners that a Scale has after a write.
pub fn owners_of_object(object: &mut Value, scale: &Value, paths: &ReplicasPaths, api_version: &str) {
    let parent = entries(object).unwrap_or_default();
    let mut scaled = entries(scale).unwrap_or_default();
    let mut out = Managers::default();
    for (key, owned) in &parent.fields {
        // Nobody knows what an owner of an unknown version owns.
        let Some(path) = paths.get(&owned.api_version) else {
            continue;
        };
        let mut owned = owned.clone();
        let path = path.as_deref().map(elements);
        if let Some(path) = path.filter(|path| owned.set.has_path(path))
            && scaled.fields.remove(key).is_none()
        {
            owned.set = owned.set.difference(&single(&path));
            if owned.set.is_empty() {
                continue;
            }
        }
        if let Some(time) = parent.times.get(key) {
            out.times.insert(key.clone(), time.clone());
        }
        out.fields.insert(key.clone(), owned);
    }
    let path = paths.get(api_version).and_then(Option::as_deref).map(elements);
    for (key, owned) in scaled.fields {
        let Some(path) = path
            .as_ref()
            .filter(|_| owned.set.has_path(&elements("spec.replicas")))
        else {
            continue;
        };
        if let Some(time) = parent.times.get(&key) {
            out.times.insert(key.clone(), time.clone());
        }
        let api_version = api_version.to_owned();
        out.fields.insert(
            key,
            Owned {
                set: single(path),
                api_version,
            },
        );
    }
    out.encode(object);
}
