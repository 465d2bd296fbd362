//! Pure: the clusters whose work could not be written, and when each is retried.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use writ_controller::{Name, backoff::Backoff};

use super::model::Unwritten;

/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// The clusters of one set whose work could not be written. They are remembered between reconciles: a cluster that waits
/// for its next attempt still counts as failed.
#[derive(Debug, Default)]
pub struct Failures {
    generation: Option<i64>,
    by_cluster: BTreeMap<String, Failure>,
}

/// The failures of every set.
#[derive(Default)]
pub struct AllFailures(Mutex<HashMap<Name, Failures>>);

impl AllFailures {
    /// Reads or changes the failures of one set.
    pub fn of<T>(&self, set: &Name, run: impl FnOnce(&mut Failures) -> T) -> T {
        run(self.lock().entry(set.clone()).or_default())
    }

    /// Forgets a set.
    pub fn forget(&self, set: &Name) {
        self.lock().remove(set);
    }

    /// Makes the next attempt due for a cluster that may be writable again; returns the sets that wait for it.
    pub fn wake(&self, cluster: &str) -> Vec<Name> {
        let mut woken = Vec::new();
        for (set, failures) in self.lock().iter_mut() {
            if failures.wake(cluster, Instant::now()) {
                woken.push(set.clone());
            }
        }
        woken
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Failure {
    why: String,
    pauses: Backoff,
    again: Instant,
}

impl Failures {
    /// Makes every attempt due if the set changed.
    pub fn follow_generation(&mut self, generation: Option<i64>, now: Instant) {
        if self.generation != generation {
            self.generation = generation;
            for failure in self.by_cluster.values_mut() {
                failure.wake(now);
            }
        }
    }

    /// Records a failure; the pause before the next attempt grows.
    pub fn record(&mut self, cluster: &str, why: String, now: Instant) {
        let failure = self
            .by_cluster
            .entry(cluster.to_owned())
            .or_insert_with(|| Failure {
                why: String::new(),
                pauses: Backoff::new(PAUSES.0, PAUSES.1),
                again: now,
            });
        failure.why = why;
        failure.again = now + failure.pauses.next_delay();
    }

    /// Records that the work was written.
    pub fn clear(&mut self, cluster: &str) {
        self.by_cluster.remove(cluster);
    }

    /// Makes the next attempt due for this cluster; returns whether it had failed.
    pub fn wake(&mut self, cluster: &str, now: Instant) -> bool {
        let failure = self.by_cluster.get_mut(cluster);
        failure.map(|failure| failure.wake(now)).is_some()
    }

    /// Forgets all clusters but these.
    pub fn retain(&mut self, clusters: &BTreeSet<String>) {
        self.by_cluster.retain(|cluster, _| clusters.contains(cluster));
    }

    /// The clusters that could not be written.
    pub fn unwritten(&self, now: Instant) -> BTreeMap<String, Unwritten> {
        let views = self.by_cluster.iter().map(|(cluster, failure)| {
            let why = failure.why.clone();
            let due = failure.again <= now;
            (cluster.clone(), Unwritten { why, due })
        });
        views.collect()
    }

    /// The time until the next attempt that is not due yet.
    pub fn next_attempt(&self, now: Instant) -> Option<Duration> {
        let ahead = self.by_cluster.values().filter(|failure| failure.again > now);
        ahead.map(|failure| failure.again - now).min()
    }
}

impl Failure {
    fn wake(&mut self, now: Instant) {
        self.pauses.reset();
        self.again = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_set_or_the_cluster_changes() {
        let now = Instant::now();
        let mut failures = Failures::default();
        failures.follow_generation(Some(1), now);
        let due = |failures: &Failures, at| failures.unwritten(at)["c1"].due;
        for _ in 0..12 {
            failures.record("c1", "no such namespace".into(), now);
            assert!(!due(&failures, now));
        }
        let longest = failures.next_attempt(now).unwrap();
        assert!(longest > PAUSES.1 / 2 && longest < PAUSES.1 * 2, "{longest:?}");
        assert!(due(&failures, now + longest));
        // Its namespace appears.
        assert!(failures.wake("c1", now) && due(&failures, now));
        assert!(!failures.wake("c2", now));
        failures.record("c1", "not yet".into(), now);
        assert!(failures.next_attempt(now).unwrap() < PAUSES.0 * 2);
        // The set changes.
        failures.follow_generation(Some(1), now);
        assert!(!due(&failures, now));
        failures.follow_generation(Some(2), now);
        assert!(due(&failures, now));
        assert_eq!(failures.next_attempt(now), None);
        failures.retain(&BTreeSet::new());
        assert!(failures.unwritten(now).is_empty());
    }
}
