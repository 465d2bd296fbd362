//! Which account is looked at when. Of those that are due, the one whose token expires first goes first, so
//! that after an outage the most urgent is served before the rest.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// The accounts that wait, by name.
#[derive(Debug, Default)]
pub struct Schedule {
    waiting: BTreeMap<String, Entry>,
    running: BTreeSet<String>,
    /// Names that were wanted while they ran.
    again: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Timestamp,
    expires: Option<Timestamp>,
}

impl Schedule {
    /// Looks at the account now, whatever was planned; if it is being looked at, then once more after that.
    pub fn now(&mut self, name: &str, now: Timestamp) {
        if self.running.contains(name) {
            self.again.insert(name.to_owned());
            return;
        }
        let expires = self.waiting.get(name).and_then(|entry| entry.expires);
        self.waiting.insert(name.to_owned(), Entry { due: now, expires });
    }

    /// Takes the most urgent account that is due.
    pub fn take(&mut self, now: Timestamp) -> Option<String> {
        let name = self
            .waiting
            .iter()
            .filter(|(_, entry)| entry.due <= now)
            .min_by_key(|(_, entry)| (entry.expires.unwrap_or(Timestamp::MAX), entry.due))
            .map(|(name, _)| name.clone())?;
        self.waiting.remove(&name);
        self.running.insert(name.clone());
        Some(name)
    }

    /// Puts an account back that was taken: to be looked at again at `due`, or only when something happens.
    pub fn done(&mut self, name: &str, due: Option<Timestamp>, expires: Option<Timestamp>, now: Timestamp) {
        self.running.remove(name);
        let due = if self.again.remove(name) { Some(now) } else { due };
        if let Some(due) = due {
            self.waiting.insert(name.to_owned(), Entry { due, expires });
        }
    }

    /// When the next account is due.
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
    fn of_those_that_are_due_the_first_to_expire_goes_first() {
        let mut schedule = Schedule::default();
        for (name, due, expires) in [
            ("late", 5, 300),
            ("soon", 9, 100),
            ("mid", 1, 200),
            ("not yet", 50, 1),
        ] {
            schedule.done(name, Some(at(due)), Some(at(expires)), at(0));
        }
        let order: Vec<_> = std::iter::from_fn(|| schedule.take(at(10))).collect();
        assert_eq!(order, ["soon", "mid", "late"]);
        assert_eq!(schedule.next_due(), Some(at(50)));
    }

    #[test]
    fn what_happens_meanwhile_is_looked_at_afterwards() {
        let mut schedule = Schedule::default();
        schedule.now("a", at(1));
        assert_eq!(schedule.take(at(1)).as_deref(), Some("a"));
        schedule.now("a", at(2));
        assert_eq!(schedule.take(at(2)), None, "one at a time");
        schedule.done("a", Some(at(100)), None, at(3));
        assert_eq!(schedule.take(at(3)).as_deref(), Some("a"));
    }
}
