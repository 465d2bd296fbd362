//! Garbage collection by owner references.

use std::sync::Arc;

use serde_json::Value;

use super::{Task, write};
use crate::api::{DeleteWish, Propagation, delete_object};
use crate::registry::Snapshot;
use crate::state::State;
use crate::store::{Object, TableId, Uid, key_of, uid_of};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn finalizers(value: &Value) -> Vec<String> {
    let list = value.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

fn owners(value: &Value) -> Vec<Value> {
    value
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

fn set_metadata(value: &mut Value, name: &str, list: Vec<Value>) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        if list.is_empty() {
            metadata.remove(name);
        } else {
            metadata.insert(name.to_owned(), list.into());
        }
    }
}

/// Looks at one object: does it wait for its dependents, does it still have an owner?
pub(super) fn sync(state: &State, table: &TableId, key: &Arc<str>) {
    let Some(object) = state.store.get(table, key) else {
        return;
    };
    if object.deleting {
        finish(state, &object);
    } else {
        judge(state, &object, None);
    }
}

/// An object is gone: what of its dependents?
pub(super) fn orphaned(state: &State, uid: Uid) {
    for dependent in state.store.dependents(uid) {
        if !dependent.deleting {
            judge(state, &dependent, Some(uid));
        }
    }
}

/// A dependent is gone: does its owner still wait?
pub(super) fn waiting(state: &State, uid: Uid) {
    if let Some(owner) = state.store.by_uid(uid)
        && owner.deleting
    {
        finish(state, &owner);
    }
}

/// How an owner stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Solid,
    /// It is being deleted and waits for us.
    Waiting,
    Gone,
    /// It is of a kind that is not served, or where it cannot be looked for: nobody knows.
    Unknown,
}

/// `gone` is an object that is known to have been deleted.
fn standing(
    state: &State,
    kinds: &Snapshot,
    object: &Object,
    reference: &Value,
    gone: Option<Uid>,
) -> Standing {
    let text = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
    let uid = uid_of(text("uid"));
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    let Some(resource) = kinds
        .group(group)
        .find(|resource| resource.kind == text("kind") && resource.version(version).is_some())
    else {
        return if gone == Some(uid) {
            Standing::Gone
        } else {
            Standing::Unknown
        };
    };
    // An owner lives in the same namespace, or in none.
    let namespace = if resource.namespaced {
        object.namespace()
    } else {
        ""
    };
    if resource.namespaced && namespace.is_empty() {
        return Standing::Unknown;
    }
    let found = state.store.get(&resource.table, &key_of(namespace, text("name")));
    let Some(owner) = found.filter(|owner| owner.uid == uid) else {
        return Standing::Gone;
    };
    if owner.deleting && finalizers(&owner.value()).iter().any(|name| name == FOREGROUND) {
        Standing::Waiting
    } else {
        Standing::Solid
    }
}

/// Deletes an object that has owners but none that lives; otherwise drops the references that lead nowhere.
///
/// One owner of whom nobody knows is enough to leave the object alone; it is looked at again when more kinds are served.
fn judge(state: &State, object: &Object, gone: Option<Uid>) {
    let value = object.value();
    let references = owners(&value);
    if references.is_empty() {
        return;
    }
    let kinds = state.registry.snapshot();
    let standings: Vec<Standing> = references
        .iter()
        .map(|one| standing(state, &kinds, object, one, gone))
        .collect();
    if standings.contains(&Standing::Unknown) {
        let again = Task::Object(object.table.clone(), object.key.clone());
        state.work.puzzle(again);
        // Something may have begun to be served meanwhile.
        if !Arc::ptr_eq(&kinds, &state.registry.snapshot()) {
            state.work.kinds_changed();
        }
        return;
    }
    if standings.iter().all(|one| *one == Standing::Solid) {
        return;
    }
    if standings.contains(&Standing::Solid) {
        let kept: Vec<Value> = references
            .into_iter()
            .zip(&standings)
            .filter(|(_, standing)| **standing == Standing::Solid)
            .map(|(reference, _)| reference)
            .collect();
        let mut value = value;
        set_metadata(&mut value, "ownerReferences", kept);
        write(state, object, value, || {
            Task::Object(object.table.clone(), object.key.clone())
        });
        return;
    }
    let foreground = standings.contains(&Standing::Waiting) && !state.store.dependents(object.uid).is_empty();
    let held = finalizers(&value);
    let propagation = if held.iter().any(|name| name == ORPHAN) {
        Propagation::Orphan
    } else if foreground || held.iter().any(|name| name == FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let Some(resource) = kinds.by_table(&object.table) else {
        return;
    };
    let wish = DeleteWish {
        propagation: Some(propagation),
        ..DeleteWish::default()
    };
    // Gone already, or changed so often that the next change brings us back.
    drop(delete_object(&state.store, &state.clock, resource, object, &wish));
}

/// Does what the finalizers of the garbage collector stand for.
fn finish(state: &State, object: &Object) {
    let value = object.value();
    let held = finalizers(&value);
    let again = || Task::Object(object.table.clone(), object.key.clone());
    if held.iter().any(|name| name == ORPHAN) {
        for dependent in state.store.dependents(object.uid) {
            let mut theirs = dependent.value();
            let kept: Vec<Value> = owners(&theirs)
                .into_iter()
                .filter(|one| {
                    uid_of(one.get("uid").and_then(Value::as_str).unwrap_or_default()) != object.uid
                })
                .collect();
            set_metadata(&mut theirs, "ownerReferences", kept);
            write(state, &dependent, theirs, again);
        }
        if state.store.dependents(object.uid).is_empty() {
            release(state, object, value, ORPHAN);
        }
        return;
    }
    if held.iter().any(|name| name == FOREGROUND) {
        let blocks = |dependent: &Arc<Object>| {
            owners(&dependent.value()).iter().any(|one| {
                one.get("blockOwnerDeletion") == Some(&Value::Bool(true))
                    && uid_of(one.get("uid").and_then(Value::as_str).unwrap_or_default()) == object.uid
            })
        };
        for dependent in state.store.dependents(object.uid) {
            if !dependent.deleting {
                judge(state, &dependent, None);
            }
        }
        if !state.store.dependents(object.uid).iter().any(blocks) {
            release(state, object, value, FOREGROUND);
        }
    }
}

/// Takes a finalizer away; the last one takes the object with it.
fn release(state: &State, object: &Object, mut value: Value, finalizer: &str) {
    let kept: Vec<Value> = finalizers(&value)
        .into_iter()
        .filter(|name| name != finalizer)
        .map(Value::from)
        .collect();
    let again = || Task::Object(object.table.clone(), object.key.clone());
    let namespace_lives = &*object.table == "namespaces"
        && value
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
    if kept.is_empty() && !namespace_lives {
        let expect = crate::store::Expect::At(object.rv);
        if let Err(crate::store::Refused::Changed) = state.store.remove(&object.table, &object.key, expect) {
            state.work.push(again());
        }
        return;
    }
    set_metadata(&mut value, "finalizers", kept);
    write(state, object, value, again);
}
