//! Tokens that are kept in Secrets of the type `service-account-token`. Such a token does not end by itself: it is good as long as
//! its Secret holds it and does not say that it is revoked.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::store::{Store, key_of};

/// A label with any value but nothing takes the token out of use.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// An error if the Secret of this name no longer vouches for the token.
pub(super) fn check(
    store: &Store,
    namespace: &str,
    name: &str,
    token: &str,
) -> Result<(), Cow<'static, str>> {
    let secret = store
        .get("secrets", &key_of(namespace, name))
        .filter(|secret| !secret.deleting)
        .ok_or("Token has been invalidated")?;
    let value = secret.value();
    let held = value.pointer("/data/token").and_then(Value::as_str);
    if held != Some(STANDARD.encode(token).as_str()) {
        return Err("Token does not match server's copy".into());
    }
    let labels = value.pointer("/metadata/labels");
    let since = labels.and_then(|labels| labels.get(INVALID_SINCE)?.as_str());
    if since.is_some_and(|since| !since.is_empty()) {
        return Err(format!("the token in secret {namespace}/{name} has been marked invalid").into());
    }
    Ok(())
}
