//! Discover and follow ManagedServiceAccount tokens from Rust.
//!
//! A hub may hold thousands of tokens; a program needs a few. [`Tokens`] therefore watches ManagedServiceAccounts, whose
//! status changes with every new token, and reads a Secret only when its token is asked for. It never lists Secrets,
//! so its right can be limited to the Secrets of the accounts that it uses.
//!
//! ```no_run
//! # async fn example(hub: kube::Client) -> Result<(), writ_tokens::Error> {
//! use futures::StreamExt;
//!
//! // One token, now.
//! let token = writ_tokens::get(&hub, "cluster1", "robot").await?;
//!
//! // Every token of the accounts named `robot`, on all clusters, and each new one as it comes.
//! let tokens = writ_tokens::Tokens::new(hub);
//! let mut changes = tokens.follow("robot");
//! while let Some(change) = changes.next().await {
//!     match change {
//!         writ_tokens::Change::Fresh(token) => println!("{} until {:?}", token.cluster, token.expires),
//!         writ_tokens::Change::Gone { cluster, .. } => println!("{cluster} has none any more"),
//!     }
//! }
//! # Ok(()) }
//! ```

mod error;
mod exec;
mod follow;
mod kubeconfig;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use writ_api::authentication::{
    ANNOTATION_EXPIRATION, ANNOTATION_ROTATION, GROUP, KEY_CA, KEY_TOKEN, LABEL_MANAGED,
    ManagedServiceAccount,
};

pub use error::Error;
pub use exec::{API_VERSION, exec_credential};
pub use follow::{Change, Tokens};
pub use kubeconfig::{Access, Program, exec_kubeconfig, server_of};

/// A token of an account on a managed cluster. Its text does not show in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The cluster.
    pub cluster: String,
    /// The account.
    pub name: String,
    /// The CA of the cluster's API server, in PEM.
    pub ca: Vec<u8>,
    /// When the token expires.
    pub expires: Option<Timestamp>,
    /// When it was renewed last.
    pub refreshed: Option<Timestamp>,
    secret: String,
}

impl Token {
    /// The token itself. Do not log it.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("cluster", &self.cluster)
            .field("name", &self.name)
            .field("expires", &self.expires)
            .field("refreshed", &self.refreshed)
            .finish_non_exhaustive()
    }
}

/// Reads the token of an account, as it is now.
pub async fn get(hub: &Client, cluster: &str, name: &str) -> Result<Token, Error> {
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(hub.clone(), cluster);
    let account = accounts
        .get_opt(name)
        .await
        .map_err(|source| Error::request(format!("read the account {cluster}/{name}"), source))?
        .ok_or_else(|| Error::NoAccount {
            cluster: cluster.into(),
            name: name.into(),
        })?;
    let token = read(hub, &account, cluster, name).await?;
    check_expiry(token, &account, Timestamp::now())
}

/// Refuses an expired token: the cluster would refuse it without a reason.
fn check_expiry(token: Token, account: &ManagedServiceAccount, now: Timestamp) -> Result<Token, Error> {
    let Some(expired) = token.expires.filter(|expires| *expires <= now) else {
        return Ok(token);
    };
    let rotation = account.annotations().get(ANNOTATION_ROTATION).map(String::as_str);
    let why = if rotation == Some("disabled") {
        "and is not renewed: enable spec.rotation, or delete the account and create it again"
    } else {
        "and its agent has not renewed it: see the conditions of the account and whether the cluster is available"
    };
    Err(Error::NoToken {
        why: format!("the last one expired at {expired}, {why}"),
        cluster: token.cluster,
        name: token.name,
    })
}

/// Reads the Secret of an account. The agent of the cluster writes the status, and must not choose which Secret is read
/// with the rights of the caller: only the Secret of the account's name that is marked as made for this account is.
async fn read(
    hub: &Client,
    account: &ManagedServiceAccount,
    cluster: &str,
    name: &str,
) -> Result<Token, Error> {
    let status = account.status.clone().unwrap_or_default();
    let none = |why: &str| Error::NoToken {
        cluster: cluster.into(),
        name: name.into(),
        why: why.into(),
    };
    let Some(reference) = status.token_secret_ref else {
        let why = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "TokenReported" && condition.status == "False")
            .map(|condition| condition.message.as_str());
        return Err(none(
            why.unwrap_or("the cluster's agent has not reported one yet"),
        ));
    };
    if reference.name != name {
        return Err(none("its status names a Secret that is not the account's"));
    }
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), cluster);
    let secret = secrets
        .get(name)
        .await
        .map_err(|source| Error::request(format!("read the Secret {cluster}/{name}"), source))?;
    if !belongs_to(&secret, account) {
        return Err(none("the Secret of its name was not made for this account"));
    }
    // The Secret is written before the status: the later of the two dates belongs to the token.
    let noted = secret.annotations().get(ANNOTATION_EXPIRATION);
    let noted = noted.and_then(|at| at.parse::<Timestamp>().ok());
    let data = secret.data.unwrap_or_default();
    let text = |key: &str| data.get(key).map(|value| value.0.clone()).unwrap_or_default();
    let token = String::from_utf8(text(KEY_TOKEN)).unwrap_or_default();
    if token.is_empty() {
        return Err(none("the Secret holds no token; it will be repaired"));
    }
    Ok(Token {
        cluster: cluster.into(),
        name: name.into(),
        ca: text(KEY_CA),
        expires: status.expiration_timestamp.map(|time| time.0).max(noted),
        refreshed: Some(reference.last_refresh_timestamp.0),
        secret: token,
    })
}

/// Whether the Secret is marked as made for this very account.
fn belongs_to(secret: &Secret, account: &ManagedServiceAccount) -> bool {
    let labelled = secret
        .labels()
        .get(LABEL_MANAGED)
        .is_some_and(|value| value == "true");
    let of_group = |version: &str| version.split_once('/').is_some_and(|(group, _)| group == GROUP);
    labelled
        && secret.owner_references().iter().any(|owner| {
            owner.kind == "ManagedServiceAccount"
                && of_group(&owner.api_version)
                && Some(&owner.uid) == account.metadata.uid.as_ref()
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn expired_token_is_refused() {
        let account = |rotation: &str| {
            serde_json::from_value(json!({
                "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
                "metadata": { "name": "a", "namespace": "c1", "annotations": { ANNOTATION_ROTATION: rotation } },
                "spec": { "rotation": {} },
            }))
            .unwrap()
        };
        let token = |second: Option<i64>| Token {
            cluster: "c1".into(),
            name: "a".into(),
            ca: Vec::new(),
            expires: second.and_then(|second| Timestamp::from_second(second).ok()),
            refreshed: None,
            secret: "hush".into(),
        };
        let now = Timestamp::from_second(100).unwrap();
        for second in [None, Some(101)] {
            assert!(check_expiry(token(second), &account("enabled"), now).is_ok());
        }
        for (rotation, advice) in [("enabled", "conditions"), ("disabled", "spec.rotation")] {
            let refused = check_expiry(token(Some(100)), &account(rotation), now).unwrap_err();
            let message = refused.to_string();
            assert!(message.contains("1970-01-01T00:01:40Z"), "{message}");
            assert!(message.contains(advice) && !message.contains("hush"), "{message}");
        }
    }

    #[test]
    fn secret_without_any_of_its_marks_is_refused() {
        let account = serde_json::from_value(json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
            "metadata": { "name": "a", "namespace": "c1", "uid": "u1" }, "spec": { "rotation": {} },
        }))
        .unwrap();
        let of = |label: &str, version: &str, kind: &str, uid: &str| {
            let owner = json!({ "apiVersion": version, "kind": kind, "name": "a", "uid": uid });
            let metadata: Value = json!({ "labels": { LABEL_MANAGED: label }, "ownerReferences": [owner] });
            belongs_to(
                &serde_json::from_value(json!({ "metadata": metadata })).unwrap(),
                &account,
            )
        };
        let (version, kind) = (
            "authentication.open-cluster-management.io/v1beta1",
            "ManagedServiceAccount",
        );
        assert!(of("true", version, kind, "u1"));
        assert!(of(
            "true",
            "authentication.open-cluster-management.io/v1alpha1",
            kind,
            "u1"
        ));
        assert!(!of("false", version, kind, "u1"));
        assert!(!of(
            "true",
            "proxy.open-cluster-management.io/v1alpha1",
            kind,
            "u1"
        ));
        assert!(!of("true", version, "Other", "u1"));
        assert!(
            !of("true", version, kind, "u2"),
            "an account of that name from before"
        );
    }
}
