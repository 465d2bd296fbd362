//! Tells when somebody else changes an object again and again.
//!
//! A reconciler that answers every change at once would keep two programs and an API server busy for ever. Such an
//! object is corrected at the pace of other failures instead, and the sync says who the other one is.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::reconciler::{error::{Code, Problem}, object::Key};

/// More changes than this within [`WINDOW`] are a fight.
const CHANGES: usize = 5;
const WINDOW: Duration = Duration::from_mins(1);
/// A fight is over when nobody has changed the object for this long: longer than the longest pause between corrections.
const PEACE: Duration = Duration::from_mins(2);

/// What others did to the objects of a sync lately.
#[derive(Default)]
pub struct Fights {
    objects: BTreeMap<Key, Object>,
}

struct Object {
    /// The last changes, one more than are allowed.
    changes: VecDeque<Instant>,
    by: Option<String>,
    fighting: bool,
}

impl Fights {
    /// Notes that somebody changed an object.
    pub fn struck(&mut self, key: &Key, by: Option<String>, now: Instant) {
        let object = self.objects.entry(key.clone()).or_insert_with(|| Object {
            changes: VecDeque::new(),
            by: None,
            fighting: false,
        });
        object.changes.push_back(now);
        if object.changes.len() > CHANGES + 1 {
            object.changes.pop_front();
        }
        object.by = by.or(object.by.take());
        let many = object.changes.len() > CHANGES;
        let quick = object.changes.front().is_some_and(|first| now - *first < WINDOW);
        object.fighting |= many && quick;
    }

    /// Whether somebody fights over an object.
    pub fn fighting(&self, key: &Key) -> bool {
        self.objects.get(key).is_some_and(|object| object.fighting)
    }

    /// The fights that are not over, for the status.
    pub fn going_on(&mut self, now: Instant) -> Vec<Problem> {
        self.objects
            .retain(|_, object| object.changes.back().is_some_and(|last| now - *last < PEACE));
        self.objects
            .iter()
            .filter(|(_, object)| object.fighting)
            .map(|(key, object)| {
                let who = object.by.as_deref().map_or_else(
                    || "somebody else changes".to_owned(),
                    |by| format!("the field manager {by:?} changes"),
                );
                Problem::new(
                    Code::ResourceFight,
                    format!(
                        "{who} {key} again and again; it is corrected every half minute only. Stop that writer, or take what it writes out of the source"
                    ),
                )
                .about(key)
            })
            .collect()
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.objects.values().any(|object| object.fighting)
    }

    /// Keeps only objects that are still declared.
    pub fn retain(&mut self, declared: impl Fn(&Key) -> bool) {
        self.objects.retain(|key, _| declared(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            kind: "ConfigMap".into(),
            name: name.into(),
            ..Key::default()
        }
    }

    #[test]
    fn six_changes_in_a_minute_are_a_fight_until_there_is_peace() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut fights = Fights::default();
        for second in 0..5 {
            fights.struck(&key("a"), Some("mallory".into()), at(second));
        }
        assert!(!fights.fighting(&key("a")) && fights.going_on(at(5)).is_empty());
        fights.struck(&key("a"), None, at(6));
        assert!(fights.fighting(&key("a")) && fights.any());
        // Slow changes of another object are none.
        for change in 0..20 {
            fights.struck(&key("b"), None, at(change * 20));
        }
        assert!(!fights.fighting(&key("b")));
    }

    #[test]
    fn corrected_slowly_it_is_still_the_same_fight() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut fights = Fights::default();
        for second in 0..6 {
            fights.struck(&key("a"), Some("mallory".into()), at(second));
        }
        let problems = fights.going_on(at(6));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].code == Code::ResourceFight && problems[0].message.contains("\"mallory\""));
        fights.struck(&key("a"), None, at(40));
        assert_eq!(fights.going_on(at(100)).len(), 1);
        assert!(fights.going_on(at(161)).is_empty());
        assert!(!fights.any());
    }
}
