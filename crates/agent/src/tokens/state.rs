//! What is remembered of an account between looks, and how a look ends.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use writ_api::authentication::ManagedServiceAccountStatus;
use writ_controller::{Error, backoff::Backoff};

use super::{
    claims::Claims,
    plan::{self, Facts, Refusal, Wish},
    previous_service_account::Former,
    secret::Address,
};

/// What is remembered of an account between looks. It holds no token, except one that could not be written yet.
pub struct State {
    pub(super) account: Option<String>,
    pub(super) held: Option<Held>,
    pub(super) pending: Option<Minted>,
    pub(super) uid: Option<String>,
    /// Whether the ServiceAccount is there, ours or adopted.
    pub(super) present: bool,
    /// The account as it was when its token was reviewed last: [`plan::event`].
    pub(super) event: Option<u64>,
    pub(super) look: bool,
    pub(super) malformed_since: Option<Timestamp>,
    pub(super) rejections: Backoff,
    pub(super) rejected_until: Option<Timestamp>,
    pub(super) backoff: Backoff,
    pub(super) failures: u32,
    pub(super) former: Vec<Former>,
    pub(super) noted: bool,
    pub(super) left: Option<String>,
    pub(super) leaving: Backoff,
    /// Until when an add-on that took the name is given time to make its own ServiceAccount.
    pub(super) yields_until: Option<Timestamp>,
    /// Longer each time: some look at what they installed every few minutes only.
    pub(super) yields: Backoff,
    /// Until when the hub is given time to let the agent write the Secret.
    pub(super) patience: Option<Timestamp>,
    /// The status that was written last, and the account (uid and version) that the watch showed then.
    pub(super) told: Option<(Seen, ManagedServiceAccountStatus)>,
}

/// The uid and the version of an account.
type Seen = (Option<String>, Option<String>);

impl Default for State {
    fn default() -> Self {
        Self {
            account: None,
            held: None,
            pending: None,
            uid: None,
            present: false,
            event: None,
            look: false,
            malformed_since: None,
            rejections: Backoff::new(Duration::from_secs(10), Duration::from_mins(30)),
            rejected_until: None,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_mins(5)),
            failures: 0,
            former: Vec::new(),
            noted: false,
            left: None,
            leaving: Backoff::new(Duration::from_secs(1), Duration::from_mins(5)),
            yields_until: None,
            yields: Backoff::new(Duration::from_secs(10), Duration::from_mins(30)),
            patience: None,
            told: None,
        }
    }
}

impl State {
    /// Whether the last look failed.
    pub fn fails(&self) -> bool {
        self.failures > 0
    }

    /// Forgets failures: what failed may work now.
    pub fn hope(&mut self) {
        self.backoff.reset();
        self.leaving.reset();
    }
}

/// What the Secret is known to hold.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) claims: Claims,
    pub(super) wish: Wish,
    pub(super) ca: Arc<Vec<u8>>,
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
        if *self.ca != facts.cluster.ca {
            return Some("the cluster has another CA");
        }
        if self.claims.uid.as_deref().is_some_and(|held| held != facts.uid) {
            return Some("the ServiceAccount is a new one");
        }
        plan::is_due(&self.claims, facts).then_some("the token is to be renewed")
    }

    /// Whether the Secret is to hold the same as when it was written.
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
    pub(super) ca: Arc<Vec<u8>>,
}

impl Minted {
    /// Whether it will still do: the outage that kept it from being written may have outlasted it.
    pub(super) fn is_good(&self, facts: &Facts<'_>) -> bool {
        self.request == facts.wish.request()
            && self.uid == facts.uid
            && *self.ca == facts.cluster.ca
            && !plan::is_due(&self.claims, facts)
            && self.claims.expires > facts.now
    }
}

/// When to look again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The time; none means when something happens.
    pub due: Option<Timestamp>,
    /// When the token expires: the urgency.
    pub expires: Option<Timestamp>,
}

impl Next {
    /// Not later than then.
    #[must_use]
    pub fn within(self, then: Timestamp) -> Self {
        Self {
            due: Some(self.due.map_or(then, |due| due.min(then))),
            ..self
        }
    }
}

/// Why a look ended early.
pub(super) enum Stop {
    /// Until then, or until the hub lets the agent write the Secret.
    Waits(Timestamp),
    Refused(Refusal),
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
