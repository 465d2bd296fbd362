//! What is remembered of an account between looks, and how a look ends.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use writ_runtime::{Error, backoff::Backoff};

use super::{
    claims::Claims,
    former::Former,
    plan::{Refusal, Wish},
};

/// What is remembered of an account between looks. It holds no token, except one that could not be written yet.
pub struct State {
    pub(super) account: Option<String>,
    pub(super) held: Option<Held>,
    pub(super) pending: Option<Minted>,
    pub(super) uid: Option<String>,
    pub(super) repair: Option<String>,
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
}

impl Default for State {
    fn default() -> Self {
        Self {
            account: None,
            held: None,
            pending: None,
            uid: None,
            repair: None,
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
        }
    }
}

impl State {
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
}

/// A token that is not written yet.
pub(super) struct Minted {
    pub(super) token: Vec<u8>,
    pub(super) claims: Claims,
    pub(super) request: String,
    pub(super) uid: String,
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
