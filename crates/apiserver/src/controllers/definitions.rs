//! CustomResourceDefinitions: their conditions, and their end.
//!
//! Each step is a write of its own, which others see and may refuse.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::{CRDS, Task, Who, admitted, write};
use crate::api::{DeleteWish, delete_object, edit_metadata};
use crate::registry::{self, set_condition};
use crate::state::State;
use crate::status::Result;
use crate::store::{Expect, Object};

/// Held by a definition until the last custom resource is gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The condition of a definition that is on its way out.
pub(crate) const TERMINATING: &str = "Terminating";
const IN_PROGRESS: &str = "InstanceDeletionInProgress";

/// Marks a definition that is being deleted.
pub(crate) fn mark(value: &mut Value, finalizers: &mut Vec<String>, now: &str) {
    if !finalizers.iter().any(|name| name == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(
        value,
        TERMINATING,
        "True",
        "InstanceDeletionPending",
        message,
        now,
    );
}

/// The names of definitions that are not served: others may not have them.
#[derive(Default)]
pub(super) struct Claims(Mutex<BTreeMap<Arc<str>, Value>>);

impl Claims {
    /// Remembers what a definition has claimed; nothing, if it is gone or served.
    pub fn set(&self, definition: &Arc<str>, names: Option<Value>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match names {
            Some(names) => all.insert(definition.clone(), names),
            None => all.remove(definition),
        };
    }

    /// What others of the same group have claimed.
    fn beside(&self, definition: &str) -> Vec<Value> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = all
            .iter()
            .filter(|(name, _)| &***name != definition && group_of(name) == group_of(definition));
        others.map(|(_, names)| names.clone()).collect()
    }
}

/// The group in the name of a definition.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

pub(super) async fn sync(state: &Arc<State>, name: &Arc<str>) -> Result<()> {
    let asked = admitted::is_anybody_asked(state);
    let _turn = if asked {
        Some(state.work.naming.lock().await)
    } else {
        None
    };
    let Some(current) = state.store.get(CRDS, name) else {
        state.work.set_emptying(name, false);
        if !registry::is_shadowed(name) {
            state.store.forget(name);
        }
        // Its names are free for others.
        let (others, _) = state.store.list(CRDS, None);
        for other in others
            .iter()
            .filter(|other| group_of(&other.key) == group_of(name))
        {
            state.work.push(Task::Definition(other.key.clone()));
        }
        return Ok(());
    };
    if current.deleting {
        return end(state, name, &current, asked).await;
    }
    let mut value = current.value();
    let claims = state.work.claims.beside(name);
    let now = state.clock.rfc3339();
    let status = registry::accept_names(&value, &state.registry.snapshot(), &claims, &now);
    if let (Some(status), Some(map)) = (status, value.as_object_mut()) {
        map.insert("status".into(), status);
        let again = || Task::Definition(name.clone());
        return write(state, Who::Server, "status", &current, value, again).await;
    }
    Ok(())
}

/// One step on the way out of a definition; the change that it makes brings the next.
async fn end(state: &Arc<State>, name: &Arc<str>, current: &Object, asked: bool) -> Result<()> {
    let again = || Task::Definition(name.clone());
    let mut value = current.value();
    let mut finalizers = finalizers(&value);
    let before = finalizers.len();
    finalizers.retain(|finalizer| finalizer != CLEANUP);
    if finalizers.len() == before {
        // Others hold it, or somebody did not want to wait.
        return Ok(());
    }
    let now = state.clock.rfc3339();
    if !is_in_progress(&value) {
        let message = "CustomResource deletion is in progress";
        set_condition(&mut value, TERMINATING, "True", IN_PROGRESS, message, &now);
        return write(state, Who::Server, "status", current, value, again).await;
    }
    let (reason, message) = if registry::is_shadowed(name) {
        // What is stored under this name is not its own.
        ("InstanceDeletionCompleted", "removed all instances")
    } else if registry::established(&value) {
        state.work.set_emptying(name, true);
        empty(state, name);
        if state.store.count(name) > 0 {
            return Ok(());
        }
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    if finalizers.is_empty() && !asked {
        // This write is its end: nobody sees what it says.
        if state
            .store
            .remove(&current.table, name, Expect::At(current.rv))
            .is_err()
        {
            state.work.push(again());
        }
        return Ok(());
    }
    set_condition(&mut value, TERMINATING, "False", reason, message, &now);
    edit_metadata(&mut value, |metadata| match finalizers.as_slice() {
        [] => metadata.remove("finalizers"),
        _ => metadata.insert("finalizers".into(), finalizers.into()),
    });
    write(state, Who::Server, "status", current, value, again).await
}

fn finalizers(value: &Value) -> Vec<Value> {
    let list = value.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

fn is_in_progress(value: &Value) -> bool {
    let conditions = value.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| {
        condition.get("type").is_some_and(|kind| kind == TERMINATING)
            && condition
                .get("reason")
                .is_some_and(|reason| reason == IN_PROGRESS)
    })
}

/// Deletes all custom resources of a definition. Nobody is asked about that, as in the real server, which goes to its storage here.
fn empty(state: &State, name: &str) {
    let snapshot = state.registry.snapshot();
    let Some(resource) = snapshot.by_table(name) else {
        return;
    };
    let (objects, _) = state.store.list(name, None);
    for object in objects.iter().filter(|object| !object.deleting) {
        let wish = DeleteWish::default();
        drop(delete_object(&state.store, &state.clock, resource, object, &wish));
    }
}
