//! Answers that are expected at once: a status that says "not yet" is not worth a write if the next one replaces it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::watches::Key;

/// How long an agent that is there may take before people are told that it has not answered.
const PROMPT: Duration = Duration::from_millis(200);

/// The permissions whose agent was asked a moment ago.
#[derive(Default)]
pub struct Expected {
    since: Mutex<HashMap<Key, Instant>>,
}

impl Expected {
    /// How long the answer may still take, if the permission waits for one.
    pub fn wait(&self, key: &Key, waits: bool) -> Option<Duration> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if !waits {
            since.remove(key);
            return None;
        }
        let asked = *since.entry(key.clone()).or_insert_with(Instant::now);
        let left = PROMPT.checked_sub(asked.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            since.remove(key);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_once() {
        let expected = Expected::default();
        let key = Key {
            namespace: "cluster1".into(),
            name: "web".into(),
        };
        let first = expected.wait(&key, true).unwrap();
        assert!(first <= PROMPT);
        assert!(expected.wait(&key, true).unwrap() <= first);
        assert_eq!(expected.wait(&key, false), None, "it came");
        assert!(expected.wait(&key, true).is_some());
        let long_ago = Instant::now().checked_sub(PROMPT).unwrap();
        expected.since.lock().unwrap().insert(key.clone(), long_ago);
        assert_eq!(expected.wait(&key, true), None, "it is late, and people are told");
        assert!(expected.since.lock().unwrap().is_empty());
    }
}
