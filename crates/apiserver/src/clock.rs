//! The time a server lives in. Tests turn it by hand, so that a month can pass in a millisecond.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Where a server reads the time: the machine's clock, or one that is moved by hand.
///
/// Clones of a manual clock are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Mutex<Timestamp>>>);

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still at `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        Self(Some(Arc::new(Mutex::new(start))))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.0.as_ref().map_or_else(Timestamp::now, |hand| {
            *hand.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Moves a manual clock forward. Does nothing to the machine's clock.
    pub fn advance(&self, by: SignedDuration) {
        if let Some(hand) = &self.0 {
            let mut hand = hand.lock().unwrap_or_else(PoisonError::into_inner);
            *hand = hand.saturating_add(by).unwrap_or(*hand);
        }
    }

    /// Now, in whole seconds, as `metadata.creationTimestamp` is written.
    pub(crate) fn rfc3339(&self) -> String {
        seconds(self.now())
    }
}

/// A time in whole seconds, as `metadata` writes it.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
