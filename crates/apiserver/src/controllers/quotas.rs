//! ResourceQuotas: counts what is in their namespaces.
//!
//! A request writes what it takes before its object is there ([`charge`]). While one is on its way, nothing is counted: it would be
//! missed.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Task, Who, admitted, store_as, write};
use crate::admission::quota::{Counted, check, concerns, count};
use crate::admission::{Rejection, Request};
use crate::resources::{Amounts, amounts};
use crate::state::State;
use crate::status;
use crate::store::Object;

pub(super) const TABLE: &str = "resourcequotas";
/// How often a request tries to write what it takes.
const TRIES: usize = 16;
/// How often it does where others may refuse it, and how long it waits for its turn and for them.
const TRIES_ASKING: usize = 4;
const PATIENCE: Duration = Duration::from_secs(10);

/// A request that has taken from a quota and not yet stored its object.
pub(crate) struct Charge(Arc<State>, Arc<str>);

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.work.uncharge(&self.1);
        // It may have come to nothing.
        self.0.work.push(Task::Quota(self.1.clone()));
    }
}

/// Takes what a request needs from the quotas of its namespace. Those who have a say about writes have it about this one, too.
pub(crate) async fn charge(
    state: &Arc<State>,
    request: &Request,
    object: &Value,
) -> Result<Option<Charge>, Rejection> {
    // A count takes nothing, and would have itself counted again.
    let is_count = request.resource == TABLE && request.subresource == "status";
    if is_count || request.namespace.is_empty() || quotas_of(state, &request.namespace).is_empty() {
        return Ok(None);
    }
    let namespace: Arc<str> = request.namespace.as_str().into();
    state.work.charge(&namespace);
    let charge = Charge(state.clone(), namespace);
    let taken = if request.dry_run || !admitted::is_anybody_asked(state) {
        take(state, request, object)
    } else {
        take_asking(state, request, object).await
    };
    taken.map(|()| (!request.dry_run).then_some(charge))
}

fn quotas_of(state: &State, namespace: &str) -> Vec<Arc<Object>> {
    state.store.list(TABLE, Some(namespace)).0
}

fn timed_out() -> Rejection {
    Rejection::internal("resource quota evaluation timed out")
}

/// The quotas that a request has yet to take from, and what they are to say then. Those that have been written to are not asked again.
fn owed(
    state: &State,
    request: &Request,
    object: &Value,
    settled: &[Arc<str>],
) -> Result<Vec<(Arc<Object>, Value)>, Rejection> {
    let mut quotas = quotas_of(state, &request.namespace);
    quotas.retain(|quota| !settled.contains(&quota.key));
    let values: Vec<Value> = quotas.iter().map(|quota| quota.value()).collect();
    let taken = check(&values, request, object)?;
    let changed = taken.into_iter().filter_map(|(i, used)| {
        let mut value = values.get(i)?.clone();
        set(&mut value, "used", &used);
        Some((quotas.get(i)?.clone(), value))
    });
    Ok(changed.collect())
}

/// Writes what a request takes while nobody has a say.
fn take(state: &State, request: &Request, object: &Value) -> Result<(), Rejection> {
    let mut settled = Vec::new();
    for _ in 0..TRIES {
        let owed = owed(state, request, object, &settled)?;
        if request.dry_run {
            return Ok(());
        }
        let mut clash = false;
        for (quota, value) in owed {
            match store_as(state, Who::Server.owner(), "status", &quota, value) {
                Ok(_) => settled.push(quota.key.clone()),
                Err(_) => clash = true,
            }
        }
        if !clash {
            return Ok(());
        }
    }
    Err(timed_out())
}

/// Writes what a request takes where others may refuse it. One request after the other does so in a namespace: while those others
/// think, all who began at the same time would be too late.
///
/// In a box: what is written here comes by here again.
fn take_asking<'a>(
    state: &'a Arc<State>,
    request: &'a Request,
    object: &'a Value,
) -> BoxFuture<'a, Result<(), Rejection>> {
    let work = async move {
        let turn = state.work.turn(&request.namespace);
        let _turn = turn.lock().await;
        let mut settled = Vec::new();
        let mut refused = None;
        for _ in 0..TRIES_ASKING {
            refused = None;
            for (quota, value) in owed(state, request, object, &settled)? {
                match admitted::put(state, Who::Server, "status", &quota, value).await {
                    Ok(()) => settled.push(quota.key.clone()),
                    Err(why) => refused = Some(why),
                }
            }
            if refused.is_none() {
                break;
            }
        }
        refused.map_or(Ok(()), |why| Err(why.into()))
    };
    Box::pin(async move {
        let outcome = tokio::time::timeout(PATIENCE, work).await;
        outcome.unwrap_or_else(|_| Err(timed_out()))
    })
}

fn set(quota: &mut Value, field: &str, amounts: &Amounts) {
    let shown: serde_json::Map<String, Value> = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_string().into()))
        .collect();
    if let Some(map) = quota.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            if shown.is_empty() {
                status.remove(field);
            } else {
                status.insert(field.to_owned(), shown.into());
            }
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
            .filter(|resource| resource.namespaced && resource.allows("get") && !resource.is_second())
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
        if amounts(&value, "/status/hard") == hard && amounts(&value, "/status/used") == used {
            continue;
        }
        set(&mut value, "hard", &hard);
        set(&mut value, "used", &used);
        let again = || Task::Quota(namespace.clone());
        outcome = outcome.and(write(state, Who::QUOTAS, "status", quota, value, again).await);
    }
    outcome
}
