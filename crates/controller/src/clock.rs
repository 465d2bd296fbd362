//! What time it is: the system's, or one that a test moves.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A clock. A simulated one follows tokio's, which a test can pause and advance: a month passes in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// Began at a time and follows tokio's clock since.
    Simulated {
        /// The time at `origin`.
        start: Timestamp,
        /// When it began.
        origin: Instant,
    },
    /// Shows these seconds since 1970 and moves only when they are written: for simulations that decide what happens next,
    /// without a runtime whose clock is paused.
    Hand(&'static AtomicI64),
}

impl Clock {
    /// A clock that shows `start` now and follows tokio's clock.
    pub fn simulated(start: Timestamp) -> Self {
        Self::Simulated {
            start,
            origin: Instant::now(),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Simulated { start, origin } => {
                let passed = SignedDuration::try_from(origin.elapsed()).unwrap_or(SignedDuration::MAX);
                start.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
            Self::Hand(seconds) => {
                Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Sleeps until `time`, or for ever if there is none. On the system's clock it may return early, at least
    /// once a minute: the clock may be set, or the machine may have slept.
    pub async fn sleep_until(&self, time: Option<Timestamp>) {
        let Some(time) = time else {
            return std::future::pending().await;
        };
        if let Self::Hand(_) = self {
            while self.now() < time {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            return;
        }
        let left = Duration::try_from(time.duration_since(self.now())).unwrap_or_default();
        tokio::time::sleep(match self {
            Self::System => left.min(Duration::from_mins(1)),
            Self::Simulated { .. } | Self::Hand(_) => left,
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_day_passes_at_once() {
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        clock.sleep_until(Timestamp::from_second(86_400).ok()).await;
        assert_eq!(clock.now().as_second(), 86_400);
    }
}
