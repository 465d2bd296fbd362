//! The types of accounts in a managed cluster: what is wanted, observed, decided and reported.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::{Error, condition::Wanted};

use crate::token_claims::Claims;

/// What is configured, and what the agent itself is.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The cluster's name on the hub.
    pub cluster: String,
    /// The agent's namespace, where the ServiceAccounts are.
    pub namespace: String,
    /// ServiceAccounts of that namespace that are never managed.
    pub reserved: Vec<String>,
    /// The address of the API server for consumers of tokens.
    pub url: Option<String>,
    /// The CA of the managed cluster, in PEM, if its ConfigMap does not tell it.
    pub ca: Option<String>,
    /// The agent's own ServiceAccount, if it runs as one of its namespace. It owns those that the agent creates, so that
    /// they are deleted with it when the agent is removed from that namespace.
    pub owner: Option<OwnerReference>,
}

/// What an account asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The account's name, and the ServiceAccount's.
    pub name: String,
    /// The requested life of a token.
    pub validity: Duration,
    /// The requested audiences; none means the API server itself.
    pub audiences: Vec<String>,
    /// Whether a token is renewed before it expires.
    pub rotate: bool,
    /// Whether a foreign ServiceAccount or Secret may be adopted.
    pub adopt: bool,
    /// Optional keys of the Secret.
    pub extra: Extra,
    /// Names of optional keys that do not exist.
    pub unknown_keys: Vec<String>,
}

/// Optional keys of the Secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// A kubeconfig.
    pub kubeconfig: bool,
    /// The keys of an Argo CD cluster.
    pub argocd: bool,
}

impl Extra {
    /// Returns true if there are any. They hold the address of the API server.
    pub fn any(self) -> bool {
        self.kubeconfig || self.argocd
    }
}

impl Wish {
    /// The request to the managed cluster, as text; a token for another request is renewed.
    pub fn request(&self) -> String {
        let mut audiences = self.audiences.clone();
        audiences.sort();
        format!(
            "validity={}s audiences={}",
            self.validity.as_secs(),
            audiences.join(",")
        )
    }
}

/// Why nothing is done for an account until it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The type of the condition that reports it.
    pub condition: &'static str,
    /// The condition's reason.
    pub reason: &'static str,
    /// The condition's message.
    pub message: String,
    /// Whether the Secret that the account had was deleted.
    pub withdrawn: bool,
}

impl Refusal {
    /// A refusal that leaves the Secret alone.
    pub fn new(condition: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            condition,
            reason,
            message: message.into(),
            withdrawn: false,
        }
    }

    /// As a condition.
    pub fn condition(&self) -> Wanted {
        Wanted::new(self.condition, false, self.reason, self.message.clone())
    }
}

/// What every Secret says of the managed cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster<'a> {
    /// The cluster's name on the hub.
    pub name: &'a str,
    /// The CA of its API server, in PEM.
    pub ca: &'a [u8],
    /// The address of its API server for consumers of tokens.
    pub address: Option<&'a Address>,
}

/// The address of the managed cluster's API server for consumers of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The URL.
    pub url: String,
    /// The CA that belongs to it, in PEM, if that is not the cluster's own: a load balancer may have another one.
    pub ca: Option<Vec<u8>>,
}

/// What is known when a Secret is judged.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The account.
    pub account: &'a ManagedServiceAccount,
    /// What it asks for.
    pub wish: &'a Wish,
    /// The uid of the ServiceAccount.
    pub uid: &'a str,
    /// The managed cluster.
    pub cluster: Cluster<'a>,
    /// The agent's namespace.
    pub namespace: &'a str,
    /// The time by the managed cluster's clock, as far as that is known.
    pub now: Timestamp,
}

/// What a Secret needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Good(Claims),
    /// Its token is good, the rest is not.
    Repair(Claims),
    /// A new token, for this reason.
    Renew(&'static str),
    /// Its token is malformed; another one may be about to be written.
    Malformed,
    /// It is foreign.
    NotOurs,
}

/// What to do with a ServiceAccount that exists.
#[derive(Clone, Debug, PartialEq)]
pub enum Existing {
    /// It is as wanted, or was adopted.
    Use,
    /// It is ours and was edited: this merge patch restores it.
    Restore(serde_json::Value),
    /// It is ours, and was made for a former account of that name: it is deleted, and every token of it with it.
    Replace,
}

/// The ServiceAccount that an account had in another namespace, which the account's own token named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousServiceAccount {
    /// The namespace.
    pub namespace: String,
    /// The uid.
    pub uid: String,
    /// When the last known token of it expires.
    pub expires: Timestamp,
}

impl fmt::Display for PreviousServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.uid, self.expires.as_second())
    }
}

/// What is reported about an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The token is in the Secret.
    Good {
        /// When it expires.
        expires: Timestamp,
        /// The digest of the Secret.
        digest: String,
        /// Set if the token is new.
        refreshed: Option<Timestamp>,
        /// Whether the API server itself accepts it, if audiences were asked for.
        authenticates: Option<bool>,
        /// Why the ServiceAccount of the agent's previous namespace still exists.
        previous: Option<String>,
        /// Why the Secret lacks keys that were asked for.
        keys: Option<Refusal>,
    },
    /// The token has expired and is not renewed, as was asked for.
    Expired,
    /// Something is wrong with the account itself.
    Refused(Refusal),
    /// A request failed.
    Failed {
        /// Whether the ServiceAccount exists.
        present: bool,
        /// What was tried, and the answer.
        message: String,
    },
}

/// Why a reconcile ended early.
pub enum Stop {
    /// Until then, or until the hub lets the agent write the Secret.
    Wait(Timestamp),
    /// Until the account changes.
    Refused(Refusal),
    /// A request failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
