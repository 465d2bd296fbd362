//! Secrets of the type `kubernetes.io/service-account-token`: filled in, and deleted with their account.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Task, write};
use crate::auth::{Bound, ISSUER, TokenWish};
use crate::state::State;
use crate::store::{Expect, key_of};

const KIND: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

pub(super) fn sync_all(state: &State, namespace: &str) {
    for secret in state.store.list("secrets", Some(namespace)).0 {
        sync(state, &secret.key);
    }
}

pub(super) fn sync(state: &State, key: &Arc<str>) {
    let Some(current) = state.store.get("secrets", key) else {
        return;
    };
    let mut value = current.value();
    if current.deleting || value.get("type").and_then(Value::as_str) != Some(KIND) {
        return;
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
        drop(state.store.remove(&current.table, key, Expect::At(current.rv)));
        return;
    }
    let name = current.name().to_owned();
    let own_uid = value
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let mut data = value
        .get("data")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let before = data.clone();
    data.insert("ca.crt".into(), STANDARD.encode(&state.authority.pem).into());
    data.insert("namespace".into(), STANDARD.encode(&namespace).into());
    if !data.contains_key("token") {
        let wish = TokenWish {
            namespace,
            account: Bound {
                name: account,
                uid: have.to_owned(),
            },
            audiences: vec![ISSUER.to_owned()],
            secret: Some(Bound { name, uid: own_uid }),
            ..TokenWish::default()
        };
        match state.issuer.sign(wish, &state.clock) {
            Ok((token, _)) => drop(data.insert("token".into(), STANDARD.encode(token).into())),
            Err(error) => return tracing::error!(%error, "a token cannot be signed"),
        }
    }
    if data == before && uid == have {
        return;
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
    write(state, &current, value, || Task::TokenSecret(key.clone()));
}
