//! Growing pauses for an object that another writer changes again and again.
//!
//! Correcting every change at once would keep two programs and an API server busy for ever. Corrections are counted in a
//! leaky bucket, so that slow changes are always corrected at once, and that many in a minute are a fight. A fight lasts
//! until the object has not been changed for a while.

use std::time::Duration;

use tokio::time::Instant;

/// The time in which corrections are counted.
const WINDOW: Duration = Duration::from_mins(1);

/// The time without a correction after which a fight is over. It is longer than the longest pause.
const CALM: Duration = Duration::from_mins(2);

/// The longest pause is two to the power of this, in seconds.
const MAX_DOUBLINGS: u8 = 5;

/// The recent corrections of one object.
#[derive(Clone, Copy, Debug)]
pub struct DriftBackoff {
    /// So many corrections in a minute are a fight.
    limit: u8,
    /// The corrections since the fight began; 0 if there is none.
    fight: u8,
    /// The corrections in the bucket.
    level: f32,
    last: Option<Instant>,
}

impl DriftBackoff {
    /// So many corrections in a minute are a fight.
    pub const fn new(limit: u8) -> Self {
        Self {
            limit,
            fight: 0,
            level: 0.0,
            last: None,
        }
    }

    /// Counts a correction.
    pub fn count(&mut self, now: Instant) {
        if self.is_calm(now) {
            *self = Self::new(self.limit);
        }
        let limit = f32::from(self.limit);
        let since = self.last.map_or(Duration::ZERO, |last| now - last);
        let leaked = since.as_secs_f32() * limit / WINDOW.as_secs_f32();
        self.level = (self.level - leaked).max(0.0) + 1.0;
        if self.fight > 0 || self.level > limit - 1.0 {
            self.fight = self.fight.saturating_add(1);
        }
        self.last = Some(now);
    }

    /// Whether another writer fights over the object.
    pub fn is_fight(&self, now: Instant) -> bool {
        self.fight > 0 && !self.is_calm(now)
    }

    /// How long to wait before the next correction.
    pub fn pause(&self, now: Instant) -> Duration {
        if self.is_fight(now) {
            Duration::from_secs(1 << self.fight.min(MAX_DOUBLINGS))
        } else {
            Duration::ZERO
        }
    }

    /// Whether there was no correction for so long that earlier ones do not count any more.
    pub fn is_calm(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now - last > CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses after corrections at these seconds.
    fn pauses(limit: u8, seconds: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let start = Instant::now();
        let mut backoff = DriftBackoff::new(limit);
        let pauses = seconds.into_iter().map(|second| {
            let now = start + Duration::from_secs(second);
            backoff.count(now);
            backoff.pause(now).as_secs()
        });
        pauses.collect()
    }

    #[test]
    fn quick_corrections_are_paused_longer_and_longer() {
        assert_eq!(pauses(6, 0..6), [0, 0, 0, 0, 0, 2]);
        assert_eq!(pauses(3, [0; 9]), [0, 0, 2, 4, 8, 16, 32, 32, 32]);
        // A fight that is answered slowly goes on.
        assert_eq!(pauses(3, [0, 0, 0, 40, 80]), [0, 0, 2, 4, 8]);
    }

    #[test]
    fn slow_corrections_are_never_paused() {
        assert_eq!(pauses(6, (0..50).map(|change| change * 20)), [0; 50]);
    }

    #[test]
    fn fight_is_over_when_it_is_calm() {
        assert_eq!(pauses(3, [0, 0, 0, 121, 121, 121, 121]), [0, 0, 2, 0, 0, 2, 4]);
        let mut backoff = DriftBackoff::new(1);
        let now = Instant::now();
        backoff.count(now);
        assert!(backoff.is_fight(now + CALM));
        assert!(!backoff.is_fight(now + CALM + Duration::from_secs(1)));
    }
}
