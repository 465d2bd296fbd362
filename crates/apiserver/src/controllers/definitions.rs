//! CustomResourceDefinitions: their conditions, and their end.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CRDS, Task, Who, admitted, write};
use crate::api::{DeleteWish, delete_object};
use crate::registry;
use crate::state::State;
use crate::status::Result;
use crate::store::Expect;

/// Held by a definition until the last custom resource is gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The condition of a definition that is on its way out.
pub(crate) const TERMINATING: &str = "Terminating";

/// Marks a definition that is being deleted.
pub(crate) fn mark(value: &mut Value, finalizers: &mut Vec<String>, now: &str) {
    if !finalizers.iter().any(|name| name == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
    set_condition(
        value,
        &json!({
            "type": TERMINATING, "status": "True", "reason": "InstanceDeletionPending", "lastTransitionTime": now,
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }),
    );
}

fn set_condition(value: &mut Value, condition: &Value) {
    let Some(map) = value.as_object_mut() else { return };
    let status = map.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return;
    };
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.retain(|have| have.get("type") != condition.get("type"));
        list.push(condition.clone());
    }
}

pub(super) async fn sync(state: &Arc<State>, name: &Arc<str>) -> Result<()> {
    let asked = admitted::is_anybody_asked(state);
    let _turn = if asked {
        Some(state.work.naming.lock().await)
    } else {
        None
    };
    let again = || Task::Definition(name.clone());
    let Some(current) = state.store.get(CRDS, name) else {
        state.work.set_emptying(name, false);
        state.store.forget(name);
        return Ok(());
    };
    let mut value = current.value();
    if !current.deleting {
        let status = registry::accept_names(&value, &state.registry.snapshot(), &state.clock.rfc3339());
        if let (Some(status), Some(map)) = (status, value.as_object_mut()) {
            map.insert("status".into(), status);
            return write(state, Who::Server, "status", &current, value, again).await;
        }
        return Ok(());
    }
    state.work.set_emptying(name, true);
    if let Some(resource) = state.registry.snapshot().by_table(name) {
        for object in state
            .store
            .list(name, None)
            .0
            .iter()
            .filter(|object| !object.deleting)
        {
            drop(delete_object(
                &state.store,
                &state.clock,
                resource,
                object,
                &DeleteWish::default(),
            ));
        }
    }
    if state.store.count(name) > 0 {
        return Ok(());
    }
    let list = value
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let kept: Vec<Value> = list
        .iter()
        .filter(|finalizer| *finalizer != CLEANUP)
        .cloned()
        .collect();
    if kept.is_empty() && !asked {
        if state
            .store
            .remove(&current.table, name, Expect::At(current.rv))
            .is_err()
        {
            state.work.push(again());
        }
    } else if kept.len() != list.len()
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("finalizers".into(), kept.into());
        return write(state, Who::Server, "status", &current, value, again).await;
    }
    Ok(())
}
