//! Signs approved requests for client certificates.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Task, Who, write};
use crate::serve::CLIENT_SIGNER;
use crate::state::State;
use crate::status::Result;

pub(super) const TABLE: &str = "certificatesigningrequests.certificates.k8s.io";

pub(super) async fn sync(state: &Arc<State>, name: &Arc<str>) -> Result<()> {
    let Some(current) = state.store.get(TABLE, name) else {
        return Ok(());
    };
    let mut value = current.value();
    let has = |kind: &str| {
        value
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
            })
    };
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/signerName") != CLIENT_SIGNER
        || !has("Approved")
        || has("Denied")
        || has("Failed")
        || !text("/status/certificate").is_empty()
    {
        return Ok(());
    }
    let request = STANDARD.decode(text("/spec/request"));
    let usages: Vec<&str> = value
        .pointer("/spec/usages")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let seconds = value.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let signed = state
        .authority
        .sign(&request.unwrap_or_default(), &usages, seconds, state.clock.now());
    let now = state.clock.rfc3339();
    let Some(map) = value.as_object_mut() else {
        return Ok(());
    };
    let status = map.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else {
        return Ok(());
    };
    match signed {
        Ok(pem) => drop(status.insert("certificate".into(), STANDARD.encode(pem).into())),
        Err(problem) => {
            let conditions = status.entry("conditions").or_insert_with(|| json!([]));
            if let Some(conditions) = conditions.as_array_mut() {
                conditions.push(json!({
                    "type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                    "message": problem.to_string(), "lastUpdateTime": now, "lastTransitionTime": now,
                }));
            }
        }
    }
    let again = || Task::Certificate(name.clone());
    write(state, Who::SIGNER, "status", &current, value, again).await
}
