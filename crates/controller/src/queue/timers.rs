//! Keys by the time at which they are due.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Each key once, at the earliest time that was asked for.
#[derive(Debug)]
pub struct Timers<T, K> {
    keys: BTreeMap<(T, u64), K>,
    times: HashMap<K, (T, u64)>,
    made: u64,
}

impl<T, K> Default for Timers<T, K> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            times: HashMap::new(),
            made: 0,
        }
    }
}

impl<T: Copy + Ord, K: Clone + Eq + Hash> Timers<T, K> {
    /// Sets the time of a key, unless it is due earlier. Returns whether it was set.
    pub fn set(&mut self, key: K, due: T) -> bool {
        if self.times.get(&key).is_some_and(|(known, _)| *known <= due) {
            return false;
        }
        self.remove(&key);
        self.made += 1;
        let timer = (due, self.made);
        self.times.insert(key.clone(), timer);
        self.keys.insert(timer, key);
        true
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &K) {
        if let Some(timer) = self.times.remove(key) {
            self.keys.remove(&timer);
        }
    }

    /// When the first key is due.
    pub fn first(&self) -> Option<T> {
        self.keys.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes out the keys that are due.
    pub fn take_due(&mut self, now: &T) -> Vec<K> {
        let mut due = Vec::new();
        while let Some(entry) = self.keys.first_entry()
            && entry.key().0 <= *now
        {
            let key = entry.remove();
            self.times.remove(&key);
            due.push(key);
        }
        due
    }
}
