//! When the agent beats again. Pure, but for a little chance.

use std::time::Duration;

use writ_controller::backoff::Backoff;

/// How soon after a failure.
const SOON: Duration = Duration::from_secs(5);
/// How long it takes at most, once renewing the lease failed again and again.
const LATEST: Duration = Duration::from_secs(30);

/// The pauses between beats.
pub struct Pace {
    after_failures: Backoff,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            after_failures: Backoff::new(SOON, LATEST),
        }
    }
}

impl Pace {
    /// How long to wait after a beat: as the hub asks if all is well, and never longer. A lease that could not be renewed,
    /// which may be missing for long, is tried again later and later. Whether a cluster that is not well has become so
    /// is asked soon again, whatever the hub says.
    pub fn pause(&mut self, every: Duration, renewed: bool, well: bool) -> Duration {
        let again = if renewed {
            self.after_failures.reset();
            every
        } else {
            self.after_failures.next_delay()
        };
        every.min(again).min(if well { every } else { SOON })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_mins(1);

    /// Whether a pause is this long, but for the fifth by which agents differ.
    fn about(pause: Duration, seconds: u64) -> bool {
        let wanted = Duration::from_secs(seconds);
        pause >= wanted.mul_f64(0.79) && pause <= wanted.mul_f64(1.21)
    }

    #[test]
    fn a_lease_that_stays_missing_is_asked_for_less_and_less() {
        let mut pace = Pace::default();
        for seconds in [5, 10, 20, 30, 30] {
            let pause = pace.pause(EVERY, false, true);
            assert!(about(pause, seconds), "{pause:?} instead of {seconds} s");
        }
        assert_eq!(pace.pause(EVERY, true, true), EVERY);
        // It is there again, and missing again: that is a new story.
        assert!(about(pace.pause(EVERY, false, true), 5));
    }

    #[test]
    fn no_pause_is_longer_than_the_hub_asks_for() {
        let mut pace = Pace::default();
        let every = Duration::from_secs(2);
        for renewed in [false, false, false, true] {
            assert_eq!(pace.pause(every, renewed, true), every);
            assert_eq!(pace.pause(every, renewed, false), every);
        }
    }

    #[test]
    fn a_cluster_that_is_not_well_is_asked_soon_again() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(EVERY, true, false), SOON);
        // And no less often because the hub fails, too.
        for _ in 0..5 {
            assert!(pace.pause(EVERY, false, false) <= SOON);
        }
    }
}
