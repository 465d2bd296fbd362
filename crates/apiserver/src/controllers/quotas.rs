//! ResourceQuotas: counts what is in their namespaces.
//!
//! A request writes what it takes before its object is there ([`charge`]). While one is on its way, nothing is counted: it would be
//! missed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Task, Who, store_as, write};
use crate::admission::quota::{Counted, check, concerns, count};
use crate::admission::{Rejection, Request};
use crate::resources::{Amounts, amounts};
use crate::state::State;
use crate::status;

pub(super) const TABLE: &str = "resourcequotas";
/// Who writes what a request takes.
const SERVER: &str = "kube-apiserver";
/// How often a request tries to write what it takes.
const TRIES: usize = 16;

/// A request that has taken from a quota and not yet stored its object.
pub(crate) struct Charge(Arc<State>, Arc<str>);

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.work.uncharge(&self.1);
        // It may have come to nothing.
        self.0.work.push(Task::Quota(self.1.clone()));
    }
}

/// Takes what a request needs from the quotas of its namespace.
pub(crate) fn charge(
    state: &Arc<State>,
    request: &Request,
    object: &Value,
) -> Result<Option<Charge>, Rejection> {
    let list = || state.store.list(TABLE, Some(&request.namespace)).0;
    // A count takes nothing, and would have itself counted again.
    let is_count = request.resource == TABLE && request.subresource == "status";
    if is_count || request.namespace.is_empty() || list().is_empty() {
        return Ok(None);
    }
    let namespace: Arc<str> = request.namespace.as_str().into();
    state.work.charge(&namespace);
    let charge = Charge(state.clone(), namespace);
    // Those that have been written to are not asked again.
    let mut settled: Vec<Arc<str>> = Vec::new();
    for _ in 0..TRIES {
        let quotas: Vec<_> = list().into_iter().filter(|q| !settled.contains(&q.key)).collect();
        let values: Vec<Value> = quotas.iter().map(|quota| quota.value()).collect();
        let changes = check(&values, request, object)?;
        if request.dry_run {
            return Ok(None);
        }
        let mut clash = false;
        for (i, used) in changes {
            let (Some(quota), Some(value)) = (quotas.get(i), values.get(i)) else {
                continue;
            };
            let mut value = value.clone();
            set(&mut value, "used", &used);
            match store_as(state, SERVER, "status", quota, value) {
                Ok(_) => settled.push(quota.key.clone()),
                Err(_) => clash = true,
            }
        }
        if !clash {
            return Ok(Some(charge));
        }
    }
    Err(Rejection::internal("resource quota evaluation timed out"))
}

fn set(quota: &mut Value, field: &str, amounts: &Amounts) {
    let shown: serde_json::Map<String, Value> = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_string().into()))
        .collect();
    if let Some(map) = quota.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert(field.to_owned(), shown.into());
        }
    }
}

/// Counts for all quotas of a namespace.
pub(super) async fn sync(state: &Arc<State>, namespace: &Arc<str>) -> status::Result<()> {
    let (quotas, _) = state.store.list(TABLE, Some(namespace));
    if quotas.is_empty() {
        state.work.set_limited(namespace, false);
        return Ok(());
    }
    // Read first, asked second: whoever wrote to them before is done with its object now, or comes again when it is.
    if state.work.is_charged(namespace) {
        return Ok(());
    }
    let snapshot = state.registry.snapshot();
    let mut outcome = Ok(());
    for quota in quotas.iter().filter(|quota| !quota.deleting) {
        let mut value = quota.value();
        let hard = amounts(&value, "/spec/hard");
        let kinds = snapshot
            .all()
            .filter(|resource| resource.namespaced && resource.allows("get"))
            .filter_map(|resource| {
                let kind =
                    Counted::of(&resource.group, &resource.plural).filter(|kind| concerns(&hard, *kind))?;
                let (objects, _) = state.store.list(&resource.table, Some(namespace));
                Some((kind, objects.iter().map(|object| object.value()).collect()))
            });
        let counted = count(&value, &hard, kinds);
        // Of what is not known here, the last word counts.
        let mut used: Amounts = amounts(&value, "/status/used");
        used.extend(counted);
        used.retain(|name, _| hard.contains_key(name));
        let same = amounts(&value, "/status/hard") == hard
            && amounts(&value, "/status/used") == used
            && value.pointer("/status/hard").is_some();
        if same {
            continue;
        }
        set(&mut value, "hard", &hard);
        set(&mut value, "used", &used);
        let again = || Task::Quota(namespace.clone());
        outcome = outcome.and(write(state, Who::QUOTAS, "status", quota, value, again).await);
    }
    outcome
}
