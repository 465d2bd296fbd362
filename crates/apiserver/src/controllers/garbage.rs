//! Garbage collection by owner references.

use std::sync::Arc;

use serde_json::Value;

use super::{Task, Who, admitted, retry};
use crate::api::Propagation;
use crate::registry::Snapshot;
use crate::state::State;
use crate::status::Result;
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
pub(super) async fn sync(state: &Arc<State>, table: &TableId, key: &Arc<str>) {
    let Some(object) = state.store.get(table, key) else {
        state.work.retries.done(&Task::Object(table.clone(), key.clone()));
        return;
    };
    if object.deleting {
        finish(state, &object).await;
    } else {
        judge(state, &object, None).await;
    }
}

fn settle(state: &Arc<State>, object: &Object, outcome: Result<()>) {
    let task = Task::Object(object.table.clone(), object.key.clone());
    retry::settle(state, &task, outcome);
}

/// An object is gone: what of its dependents?
pub(super) async fn orphaned(state: &Arc<State>, uid: Uid) {
    for dependent in state.store.dependents(uid) {
        if !dependent.deleting {
            judge(state, &dependent, Some(uid)).await;
        }
    }
}

/// A dependent is gone: does its owner still wait?
pub(super) async fn waiting(state: &Arc<State>, uid: Uid) {
    if let Some(owner) = state.store.by_uid(uid)
        && owner.deleting
    {
        finish(state, &owner).await;
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
async fn judge(state: &Arc<State>, object: &Object, gone: Option<Uid>) {
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
        let lost: Vec<Uid> = references
            .iter()
            .zip(&standings)
            .filter(|(_, standing)| **standing != Standing::Solid)
            .map(|(reference, _)| owner_of(reference))
            .collect();
        let outcome = disown(state, object, &lost).await;
        return settle(state, object, outcome);
    }
    let foreground = standings.contains(&Standing::Waiting) && state.store.has_dependents(object.uid);
    if foreground && references.iter().any(blocks) && is_in_circle(state, object) {
        let outcome = unblock(state, object).await;
        if outcome.is_ok() {
            let owners = references.iter().map(owner_of);
            owners.for_each(|owner| state.work.push(Task::Owner(owner)));
        }
        // It has changed, and is looked at again.
        return settle(state, object, outcome);
    }
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
    let outcome = admitted::collect(state, resource, object, propagation).await;
    settle(state, object, outcome);
}

/// Whether one that waits for this object is waited for by it: then each would wait for ever.
fn is_in_circle(state: &State, object: &Object) -> bool {
    let waits = |dependent: &Arc<Object>| {
        dependent.deleting
            && finalizers(&dependent.value())
                .iter()
                .any(|name| name == FOREGROUND)
    };
    state.store.dependents(object.uid).iter().any(waits)
}

fn blocks(reference: &Value) -> bool {
    reference.get("blockOwnerDeletion") == Some(&Value::Bool(true))
}

/// Lets no owner wait for an object.
async fn unblock(state: &Arc<State>, object: &Object) -> Result<()> {
    admitted::tidy(state, Who::COLLECTOR, object, |value| {
        let mut references = owners(value);
        for reference in references.iter_mut().filter(|reference| blocks(reference)) {
            if let Some(map) = reference.as_object_mut() {
                map.insert("blockOwnerDeletion".into(), false.into());
            }
        }
        set_metadata(value, "ownerReferences", references);
    })
    .await
}

fn owner_of(reference: &Value) -> Uid {
    uid_of(reference.get("uid").and_then(Value::as_str).unwrap_or_default())
}

/// Drops the references to some owners.
async fn disown(state: &Arc<State>, object: &Object, lost: &[Uid]) -> Result<()> {
    admitted::tidy(state, Who::COLLECTOR, object, |value| {
        let mut kept = owners(value);
        kept.retain(|reference| !lost.contains(&owner_of(reference)));
        set_metadata(value, "ownerReferences", kept);
    })
    .await
}

/// Does what the finalizers of the garbage collector stand for.
async fn finish(state: &Arc<State>, object: &Object) {
    let held = finalizers(&object.value());
    if held.iter().any(|name| name == ORPHAN) {
        for dependent in state.store.dependents(object.uid) {
            // The owner waits until all are free.
            let outcome = disown(state, &dependent, &[object.uid]).await;
            if outcome.is_err() {
                return settle(state, object, outcome);
            }
        }
        if !state.store.has_dependents(object.uid) {
            release(state, object, ORPHAN).await;
        }
        return;
    }
    if held.iter().any(|name| name == FOREGROUND) {
        let blocks = |dependent: &Arc<Object>| {
            let mut owners = owners(&dependent.value()).into_iter();
            owners.any(|one| blocks(&one) && owner_of(&one) == object.uid)
        };
        for dependent in state.store.dependents(object.uid) {
            if !dependent.deleting {
                judge(state, &dependent, None).await;
            }
        }
        if !state.store.dependents(object.uid).iter().any(blocks) {
            release(state, object, FOREGROUND).await;
        }
    }
}

/// Takes a finalizer away; the last one takes the object with it.
async fn release(state: &Arc<State>, object: &Object, finalizer: &str) {
    let outcome = admitted::tidy(state, Who::COLLECTOR, object, |value| {
        let kept = finalizers(value).into_iter().filter(|name| name != finalizer);
        set_metadata(value, "finalizers", kept.map(Value::from).collect());
    })
    .await;
    settle(state, object, outcome);
}
