//! Secrets of the type `kubernetes.io/service-account-token`: filled in, and deleted with their account.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Task, Who, admitted, retry, write};
use crate::api::edit_metadata;
use crate::auth::{Bound, LAST_USED, today};
use crate::state::State;
use crate::status::Result;
use crate::store::{Expect, key_of};

const KIND: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

pub(super) async fn sync_all(state: &Arc<State>, namespace: &str) {
    for secret in state.store.list("secrets", Some(namespace)).0 {
        let outcome = sync(state, &secret.key).await;
        retry::settle(state, &Task::TokenSecret(secret.key.clone()), outcome);
    }
}

pub(super) async fn sync(state: &Arc<State>, key: &Arc<str>) -> Result<()> {
    let Some(current) = state.store.get("secrets", key) else {
        return Ok(());
    };
    let mut value = current.value();
    if current.deleting || value.get("type").and_then(Value::as_str) != Some(KIND) {
        return Ok(());
    }
    let annotation = |name: &str| {
        value
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(name))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (account, uid) = (annotation(NAME).to_owned(), annotation(UID).to_owned());
    let namespace = current.namespace().to_owned();
    let found = state
        .store
        .get("serviceaccounts", &key_of(&namespace, &account))
        .map(|found| found.value());
    let have = found
        .as_ref()
        .and_then(|found| found.pointer("/metadata/uid")?.as_str())
        .unwrap_or_default();
    if have.is_empty() || (!uid.is_empty() && uid != have) {
        // The account that it spoke for is gone.
        if admitted::is_anybody_asked(state) {
            return admitted::delete(state, Who::Manager, &current).await;
        }
        drop(state.store.remove(&current.table, key, Expect::At(current.rv)));
        return Ok(());
    }
    let mut data = value
        .get("data")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let before = data.clone();
    data.insert("ca.crt".into(), STANDARD.encode(&state.authority.pem).into());
    let is_empty = |data: &Map<String, Value>, name: &str| {
        let text = data.get(name).and_then(Value::as_str);
        text.is_none_or(str::is_empty)
    };
    // What somebody else has filled in stays, right or wrong.
    if is_empty(&data, "namespace") {
        data.insert("namespace".into(), STANDARD.encode(&namespace).into());
    }
    if is_empty(&data, "token") {
        let account = Bound {
            name: account,
            uid: have.to_owned(),
        };
        match state.issuer.issue_kept(&namespace, current.name(), &account) {
            Ok(token) => drop(data.insert("token".into(), STANDARD.encode(token).into())),
            Err(error) => {
                tracing::error!(%error, "a token cannot be signed");
                return Ok(());
            }
        }
    }
    if data == before {
        return Ok(());
    }
    let uid = have.to_owned();
    if let Some(map) = value.as_object_mut() {
        map.insert("data".into(), data.into());
    }
    if let Some(annotations) = value
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert(UID.into(), json!(uid));
    }
    let again = || Task::TokenSecret(key.clone());
    write(state, Who::Manager, "", &current, value, again).await
}

/// Writes down the day on which a token was used. If somebody says no, its next use is the next try.
pub(super) async fn used(state: &Arc<State>, key: &Arc<str>) {
    let Some(secret) = state.store.get("secrets", key) else {
        return;
    };
    let today = today(&state.clock);
    let marked = admitted::tidy(state, Who::Server, &secret, |secret| {
        edit_metadata(secret, |metadata| {
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(LAST_USED.into(), today.clone().into());
            }
        });
    });
    if let Err(failure) = marked.await {
        tracing::warn!(secret = %key, why = failure.message(), "the use of a token cannot be written down");
    }
}
