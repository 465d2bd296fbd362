//! What is remembered of an account between reconciles.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use writ_api::authentication::ManagedServiceAccountStatus;
use writ_controller::{backoff::Backoff, cache::index_key};

use super::{
    model::{Address, Facts, PreviousServiceAccount, Wish},
    plan::{previous, token},
};
use crate::token_claims::Claims;

/// What is remembered of an account. It holds no token, except one that could not be written yet.
pub struct State {
    /// The uid of the account.
    pub(super) account: Option<String>,
    /// What the Secret is known to hold.
    pub(super) held: Option<Held>,
    /// A token that could not be written yet.
    pub(super) pending: Option<Minted>,
    /// The uid of the ServiceAccount, if that is ours.
    pub(super) service_account: Option<String>,
    /// Whether the ServiceAccount exists, ours or adopted.
    pub(super) present: bool,
    /// The account as it was when its token was reviewed last: [`token::input_fingerprint`].
    pub(super) reviewed_input: Option<u64>,
    /// The Secret has to be read before another token is requested.
    pub(super) must_read: bool,
    pub(super) malformed_since: Option<Timestamp>,
    pub(super) rejected_until: Option<Timestamp>,
    pub(super) rejections: Backoff,
    /// How many reconciles in a row failed.
    pub(super) failures: u32,
    /// The ServiceAccounts in previous namespaces that are still to be deleted.
    pub(super) previous: Vec<PreviousServiceAccount>,
    /// The ServiceAccount's annotation named them.
    pub(super) previous_recorded: bool,
    /// Why they could not be deleted.
    pub(super) previous_error: Option<String>,
    pub(super) previous_pauses: Backoff,
    /// Until when an add-on that took the name is given time to create its own ServiceAccount.
    pub(super) yields_until: Option<Timestamp>,
    /// Long pauses, because some add-ons check what they installed every few minutes only.
    pub(super) yields: Backoff,
    /// Until when the hub is given time to let the agent write the Secret.
    pub(super) rights_awaited_until: Option<Timestamp>,
    /// The status that was written last, and the version of the account that the cache showed then.
    pub(super) reported: Option<(Version, ManagedServiceAccountStatus)>,
}

/// The uid and the resourceVersion of an account.
pub(super) type Version = (Option<String>, Option<String>);

impl Default for State {
    fn default() -> Self {
        Self {
            account: None,
            held: None,
            pending: None,
            service_account: None,
            present: false,
            reviewed_input: None,
            must_read: false,
            malformed_since: None,
            rejected_until: None,
            rejections: Backoff::new(Duration::from_secs(10), Duration::from_mins(30)),
            failures: 0,
            previous: Vec::new(),
            previous_recorded: false,
            previous_error: None,
            previous_pauses: Backoff::new(Duration::from_secs(1), Duration::from_mins(5)),
            yields_until: None,
            yields: Backoff::new(Duration::from_secs(10), Duration::from_mins(30)),
            rights_awaited_until: None,
            reported: None,
        }
    }
}

impl State {
    /// When the account's token expires: its urgency.
    pub fn expires(&self) -> Option<Timestamp> {
        self.held.as_ref().map(|held| held.claims.expires)
    }

    /// Takes over what is recorded on the ServiceAccount. Where the agent may not look, an administrator deletes the previous
    /// one and then the annotation.
    pub(super) fn recall_previous(&mut self, account: &ServiceAccount) {
        let recorded = previous::recorded(account);
        if !recorded.is_empty() {
            self.previous = recorded;
            self.previous_recorded = true;
        } else if std::mem::take(&mut self.previous_recorded) {
            self.previous.clear();
            self.previous_error = None;
        }
    }
}

/// What the Secret is known to hold.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) claims: Claims,
    pub(super) wish: Wish,
    /// A hash of the CA: it is only compared.
    pub(super) ca: u64,
    pub(super) digest: String,
    pub(super) review_at: Timestamp,
    pub(super) authenticates: Option<bool>,
    /// The address in the optional keys.
    pub(super) address: Option<Address>,
}

impl Held {
    /// Why another token is needed at once, whatever the Secret holds.
    pub(super) fn outdated(&self, facts: &Facts<'_>) -> Option<&'static str> {
        if self.wish.request() != facts.wish.request() {
            return Some("the account asks for another token");
        }
        if self.ca != index_key(facts.cluster.ca) {
            return Some("the cluster has another CA");
        }
        if self.claims.uid.as_deref().is_some_and(|held| held != facts.uid) {
            return Some("the ServiceAccount is a new one");
        }
        token::is_due(&self.claims, facts).then_some("the token is to be renewed")
    }

    /// Returns true if the Secret is to hold the same as when it was written.
    pub(super) fn is_as_wished(&self, facts: &Facts<'_>) -> bool {
        self.wish == *facts.wish && self.address.as_ref() == facts.cluster.address
    }
}

/// A token that is not written yet.
pub(super) struct Minted {
    pub(super) token: Vec<u8>,
    pub(super) claims: Claims,
    pub(super) request: String,
    pub(super) uid: String,
    /// A hash of the CA: it is only compared.
    pub(super) ca: u64,
}

impl Minted {
    /// Returns true if it will still do: the outage that kept it from being written may have outlasted it.
    pub(super) fn is_good(&self, facts: &Facts<'_>) -> bool {
        self.request == facts.wish.request()
            && self.uid == facts.uid
            && self.ca == index_key(facts.cluster.ca)
            && !token::is_due(&self.claims, facts)
            && self.claims.expires > facts.now
    }
}
