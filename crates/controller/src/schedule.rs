//! What is looked at when. Of the things that are due, the most urgent goes first, so that after an outage it is
//! served before the rest; no thing is looked at twice at the same time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// The things that wait, by key.
#[derive(Debug)]
pub struct Schedule<K> {
    waiting: BTreeMap<K, Entry>,
    running: BTreeSet<K>,
    /// Keys that were wanted while they ran.
    again: BTreeSet<K>,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Timestamp,
    urgency: Option<Timestamp>,
}

impl<K: Ord + Clone> Schedule<K> {
    /// Looks at it now, whatever was planned; if it is being looked at, then once more after that.
    pub fn now(&mut self, key: &K, now: Timestamp) {
        if self.running.contains(key) {
            self.again.insert(key.clone());
            return;
        }
        let urgency = self.waiting.get(key).and_then(|entry| entry.urgency);
        self.waiting.insert(key.clone(), Entry { due: now, urgency });
    }

    /// Takes the most urgent one that is due: the one with the earliest urgency.
    pub fn take(&mut self, now: Timestamp) -> Option<K> {
        let key = self
            .waiting
            .iter()
            .filter(|(_, entry)| entry.due <= now)
            .min_by_key(|(_, entry)| (entry.urgency.unwrap_or(Timestamp::MAX), entry.due))
            .map(|(key, _)| key.clone())?;
        self.waiting.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Puts one back that was taken: to be looked at again at `due`, or only when something happens.
    pub fn done(&mut self, key: &K, due: Option<Timestamp>, urgency: Option<Timestamp>, now: Timestamp) {
        self.running.remove(key);
        let due = if self.again.remove(key) { Some(now) } else { due };
        if let Some(due) = due {
            self.waiting.insert(key.clone(), Entry { due, urgency });
        }
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.waiting.values().map(|entry| entry.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn of_those_that_are_due_the_most_urgent_goes_first() {
        let mut schedule = Schedule::<&str>::default();
        for (name, due, expires) in [
            ("late", 5, 300),
            ("soon", 9, 100),
            ("mid", 1, 200),
            ("not yet", 50, 1),
        ] {
            schedule.done(&name, Some(at(due)), Some(at(expires)), at(0));
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.take(at(10))).collect();
        assert_eq!(order, ["soon", "mid", "late"]);
        assert_eq!(schedule.next_due(), Some(at(50)));
    }

    #[test]
    fn what_happens_meanwhile_is_looked_at_afterwards() {
        let mut schedule = Schedule::<&str>::default();
        schedule.now(&"a", at(1));
        assert_eq!(schedule.take(at(1)), Some("a"));
        schedule.now(&"a", at(2));
        assert_eq!(schedule.take(at(2)), None, "one at a time");
        schedule.done(&"a", Some(at(100)), None, at(3));
        assert_eq!(schedule.take(at(3)), Some("a"));
    }
}
