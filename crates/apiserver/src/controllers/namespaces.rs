//! Namespaces: what each has from the start, and how one ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Task, Who, admitted, write};
use crate::bootstrap::add;
use crate::state::State;
use crate::status::Result;
use crate::store::{Expect, key_of};

/// The ConfigMap with the cluster's certificate authority, in every namespace.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

pub(super) async fn sync(state: &Arc<State>, name: &Arc<str>) -> Result<()> {
    let Some(current) = state.store.get("namespaces", name) else {
        state.work.set_emptying(name, false);
        return Ok(());
    };
    if current.deleting {
        // Nobody asks for its content any more.
        if list(&current.value(), "/spec/finalizers").is_empty() {
            return Ok(());
        }
        return end(state, name).await;
    }
    // Who is refused the one is not kept from the other: two controllers look after them.
    let account = account(state, name).await;
    account.and(root_ca(state, name).await)
}

/// Makes an object, unless there is one or somebody refuses it.
async fn create(state: &Arc<State>, who: Who, table: &str, value: Value) -> Result<()> {
    if admitted::is_anybody_asked(state) {
        return admitted::create(state, who, table, value).await;
    }
    add(state, who.owner(), table, value);
    Ok(())
}

/// The default ServiceAccount.
async fn account(state: &Arc<State>, name: &str) -> Result<()> {
    if state
        .store
        .get("serviceaccounts", &key_of(name, "default"))
        .is_some()
    {
        return Ok(());
    }
    let value = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": name } });
    create(state, Who::ACCOUNTS, "serviceaccounts", value).await
}

/// The certificate authority.
async fn root_ca(state: &Arc<State>, name: &str) -> Result<()> {
    let data = json!({ "ca.crt": state.authority.pem });
    if let Some(current) = state.store.get("configmaps", &key_of(name, ROOT_CA)) {
        let mut value = current.value();
        if value.get("data") != Some(&data)
            && !current.deleting
            && let Some(map) = value.as_object_mut()
        {
            map.insert("data".into(), data);
            let again = || Task::Namespace(name.into());
            return write(state, Who::ROOT_CA, "", &current, value, again).await;
        }
        return Ok(());
    }
    let value = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": ROOT_CA, "namespace": name,
            "annotations": { "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters." },
        },
        "data": data,
    });
    create(state, Who::ROOT_CA, "configmaps", value).await
}

/// Deletes everything in a namespace, and then the namespace.
async fn end(state: &Arc<State>, name: &Arc<str>) -> Result<()> {
    // Marked first: what goes away after this calls us again.
    state.work.set_emptying(name, true);
    let task = || Task::Namespace(name.clone());
    let snapshot = state.registry.snapshot();
    let mut refused = BTreeMap::new();
    let mut outcome = Ok(());
    for table in state.store.tables_in(name) {
        if let Some(resource) = snapshot.by_table(&table)
            && let Err(failure) = admitted::empty(state, resource, name).await
        {
            refused.insert(table, failure.message().to_owned());
            outcome = Err(failure);
        }
    }
    let remaining = state.store.tables_in(name);
    let Some(current) = state.store.get("namespaces", name) else {
        return Ok(());
    };
    let mut value = current.value();
    if !remaining.is_empty() {
        report(state, &mut value, name, &remaining, &refused);
        if value != current.value() {
            outcome = outcome.and(write(state, Who::NAMESPACES, "status", &current, value, task).await);
        }
        return outcome;
    }
    let own = list(&value, "/spec/finalizers");
    let is_asked = admitted::is_anybody_asked(state);
    let others: Vec<Value> = own
        .into_iter()
        .filter(|finalizer| finalizer != "kubernetes")
        .collect();
    let blocked = !list(&value, "/metadata/finalizers").is_empty();
    if others.is_empty() && !blocked && !is_asked {
        if state
            .store
            .remove(&current.table, &current.key, Expect::At(current.rv))
            .is_err()
        {
            state.work.push(task());
        }
        return outcome;
    }
    // What keeps it now is not its content.
    report(state, &mut value, name, &remaining, &refused);
    if value != current.value()
        && let Err(failure) = write(state, Who::NAMESPACES, "status", &current, value, task).await
    {
        // It ends without a word about it.
        tracing::debug!(namespace = %name, why = failure.message(), "the end of a namespace is not reported");
    }
    let Some(current) = state.store.get("namespaces", name) else {
        return outcome;
    };
    let mut value = current.value();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        if others.is_empty() {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".into(), others.into());
        }
    }
    if value != current.value() {
        outcome = outcome.and(write(state, Who::NAMESPACES, "finalize", &current, value, task).await);
    }
    outcome
}

fn list(value: &Value, pointer: &str) -> Vec<Value> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

/// The condition about what could not be deleted.
fn content_failure(
    refused: &BTreeMap<Arc<str>, String>,
) -> (&'static str, &'static str, &'static str, String) {
    let kind = "NamespaceDeletionContentFailure";
    if refused.is_empty() {
        let message = "All content successfully deleted, may be waiting on finalization";
        return (kind, "False", "ContentDeleted", message.into());
    }
    let mut why: Vec<&str> = refused.values().map(String::as_str).collect();
    why.sort_unstable();
    let message = format!(
        "Failed to delete all resource types, {} remaining: {}",
        why.len(),
        why.join(", ")
    );
    (kind, "True", "ContentDeletionFailed", message)
}

/// Says in the status what is left and why.
fn report(
    state: &State,
    value: &mut Value,
    name: &str,
    tables: &[Arc<str>],
    refused: &BTreeMap<Arc<str>, String>,
) {
    let now = state.clock.rfc3339();
    let mut kinds = Vec::new();
    let mut finalizers = BTreeMap::<String, usize>::new();
    // What is kept by somebody's word is not counted.
    for table in tables.iter().filter(|table| !refused.contains_key(*table)) {
        let (objects, _) = state.store.list(table, Some(name));
        // The real server writes the dot before the group even where there is none.
        let dot = if table.contains('.') { "" } else { "." };
        kinds.push(format!("{table}{dot} has {} resource instances", objects.len()));
        for object in objects {
            let value = object.value();
            let list = value
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            for finalizer in list.iter().filter_map(Value::as_str) {
                *finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
    kinds.sort();
    let held: Vec<String> = finalizers
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".into(),
        ),
        content_failure(refused),
        (
            "NamespaceContentRemaining",
            if kinds.is_empty() { "False" } else { "True" },
            if kinds.is_empty() {
                "ContentRemoved"
            } else {
                "SomeResourcesRemain"
            },
            if kinds.is_empty() {
                "All content successfully removed".into()
            } else {
                format!("Some resources are remaining: {}", kinds.join(", "))
            },
        ),
        (
            "NamespaceFinalizersRemaining",
            if held.is_empty() { "False" } else { "True" },
            if held.is_empty() {
                "ContentHasNoFinalizers"
            } else {
                "SomeFinalizersRemain"
            },
            if held.is_empty() {
                "All content-preserving finalizers finished".to_owned()
            } else {
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    held.join(", ")
                )
            },
        ),
    ];
    let old = value
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let conditions: Vec<Value> = wanted
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let before = old.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind));
            let since = before
                .filter(|c| c.get("status").and_then(Value::as_str) == Some(status))
                .and_then(|c| c.get("lastTransitionTime").cloned())
                .unwrap_or_else(|| now.clone().into());
            json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since })
        })
        .collect();
    if let Some(map) = value.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("conditions".into(), conditions.into());
            status.insert("phase".into(), "Terminating".into());
        }
    }
}
