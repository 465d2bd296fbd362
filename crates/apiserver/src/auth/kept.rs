//! Tokens that are kept in Secrets of the type `service-account-token`. Such a token does not end by itself: it is good as long as
//! its Secret holds it and does not say that it is revoked.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::User;
use super::bound::Bound;
use super::user::account_name;
use crate::clock::Clock;
use crate::controllers::Task;
use crate::state::State;
use crate::store::key_of;

/// Who issues them, whatever the issuer of all others is called.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
/// A label with any value but nothing takes the token out of use.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The day of the last use, so that tokens which nobody needs can be found.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Said to those who use one that was not asked for.
const LISTED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of \
    auto-generated secret-based tokens.";

/// What it says. It names no audience, so it is for the API server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Claims {
    iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    uid: String,
    sub: String,
}

impl Claims {
    pub fn new(namespace: &str, secret: &str, account: &Bound) -> Self {
        Self {
            iss: ISSUER.into(),
            namespace: namespace.into(),
            secret: secret.into(),
            account: account.name.clone(),
            uid: account.uid.clone(),
            sub: account_name(namespace, &account.name),
        }
    }

    /// The user, if the Secret still vouches for the token, and what they should know.
    pub fn check(
        &self,
        token: &str,
        state: &State,
    ) -> Result<(User, Option<&'static str>), Cow<'static, str>> {
        let (namespace, name, account) = (&self.namespace, &self.secret, &self.account);
        let key = key_of(namespace, name);
        let secret = state.store.get("secrets", &key).filter(|secret| !secret.deleting);
        let secret = secret.ok_or("Token has been invalidated")?.value();
        let held = secret.pointer("/data/token").and_then(Value::as_str);
        if held != Some(STANDARD.encode(token).as_str()) {
            return Err("Token does not match server's copy".into());
        }
        let speaks_for = self.account(state)?;
        if !is_today(label(&secret, LAST_USED), &state.clock) {
            state.work.push(Task::TokenUsed(key));
        }
        if !label(&secret, INVALID_SINCE).is_empty() {
            return Err(format!(
                "the token in secret {namespace}/{name} for service account {namespace}/{account} has been marked invalid. \
                 Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )
            .into());
        }
        let listed = speaks_for.pointer("/secrets").and_then(Value::as_array);
        let listed = listed
            .into_iter()
            .flatten()
            .any(|secret| secret.get("name").and_then(Value::as_str) == Some(name));
        let user = User::service_account(namespace, account, &self.uid);
        Ok((user, listed.then_some(LISTED)))
    }

    /// The account, if it is still the same.
    fn account(&self, state: &State) -> Result<Value, String> {
        let Self {
            namespace, account, ..
        } = self;
        let found = state.store.get("serviceaccounts", &key_of(namespace, account));
        let found = found.ok_or_else(|| format!("serviceaccounts {account:?} not found"))?;
        if found.deleting {
            return Err(format!("ServiceAccount {namespace}/{account} has been deleted"));
        }
        let value = found.value();
        let uid = value.pointer("/metadata/uid").and_then(Value::as_str);
        if uid != Some(&self.uid) {
            let (is, was) = (uid.unwrap_or_default(), &self.uid);
            return Err(format!("ServiceAccount UID ({is}) does not match claim ({was})"));
        }
        Ok(value)
    }
}

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    let labels = object.pointer("/metadata/labels");
    labels
        .and_then(|labels| labels.get(name)?.as_str())
        .unwrap_or_default()
}

/// Today, as the label writes it.
pub(crate) fn today(clock: &Clock) -> String {
    day(clock.now())
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// Whether this is today; tomorrow, by the clock of another server, is as good.
fn is_today(text: &str, clock: &Clock) -> bool {
    let now = clock.now();
    let tomorrow = now.saturating_add(SignedDuration::from_hours(24)).unwrap_or(now);
    text == day(now) || text == day(tomorrow)
}
