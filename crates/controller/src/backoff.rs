//! Retries: exponential, jittered, bounded.

use std::time::Duration;

use rand::RngExt;

/// Delays that double from `first` to `max`, each varied by a fifth so that a fleet does not retry in step.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff that has not failed yet.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// The delay after one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        jitter(self.first.saturating_mul(factor).min(self.max))
    }

    /// Forgets the failures, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The duration, varied by up to a fifth in both directions.
pub fn jitter(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(0.8..=1.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_bound_and_starts_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let delays: Vec<_> = (0..8).map(|_| backoff.next_delay()).collect();
        assert!(delays[0] <= Duration::from_millis(120) && delays[0] >= Duration::from_millis(80));
        assert!(delays[7] <= Duration::from_millis(1200) && delays[7] >= Duration::from_millis(800));
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(120));
    }
}
