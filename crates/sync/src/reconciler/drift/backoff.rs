//! Backs off from objects that another writer changes again and again.
//!
//! Correcting every change at once would keep two programs and an API server busy for ever. Such an object is corrected at
//! the pace of failures instead, and the status names the other writer.

use std::collections::BTreeMap;

use tokio::time::Instant;
use writ_controller::{DriftBackoff, ObjectId};

use crate::reconciler::{
    error::{Code, Problem},
    object::full_name,
};

/// So many changes in a minute are a fight.
const FIGHT: u8 = 6;

/// The recent changes by others to the objects of a sync.
#[derive(Default)]
pub struct Fights {
    objects: BTreeMap<ObjectId, Changes>,
}

struct Changes {
    backoff: DriftBackoff,
    /// The field manager of the last change, if it is known.
    by: Option<String>,
}

impl Fights {
    /// Records that a change of another writer was corrected.
    pub fn record(&mut self, id: &ObjectId, by: Option<String>, now: Instant) {
        let changes = self.objects.entry(id.clone()).or_insert_with(|| Changes {
            backoff: DriftBackoff::new(FIGHT),
            by: None,
        });
        changes.backoff.count(now);
        changes.by = by.or(changes.by.take());
    }

    /// Whether another writer fights over an object.
    pub fn is_fight(&self, id: &ObjectId) -> bool {
        self.objects
            .get(id)
            .is_some_and(|changes| changes.backoff.is_fight())
    }

    /// Whether there is any fight.
    pub fn has_fights(&self) -> bool {
        self.objects.values().any(|changes| changes.backoff.is_fight())
    }

    /// Forgets fights that are over.
    pub fn forget_calm(&mut self, now: Instant) {
        self.objects.retain(|_, changes| !changes.backoff.is_calm(now));
    }

    /// Keeps only these objects.
    pub fn retain(&mut self, keep: impl Fn(&ObjectId) -> bool) {
        self.objects.retain(|id, _| keep(id));
    }

    /// The problems that fights are.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let fights = self
            .objects
            .iter()
            .filter(|(_, changes)| changes.backoff.is_fight());
        fights.map(|(id, changes)| {
            let writer = changes.by.as_deref().map_or_else(
                || "another writer changes".to_owned(),
                |by| format!("the field manager {by:?} changes"),
            );
            let name = full_name(id);
            let message = format!(
                "{writer} {name} again and again; it is corrected only every half minute. Stop that writer, or remove the fields that it writes from the source"
            );
            Problem::new(Code::ResourceFight, message).about(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use writ_controller::Name;

    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId {
            kind: "ConfigMap".into(),
            name: Name::global(name),
            ..ObjectId::default()
        }
    }

    #[test]
    fn six_changes_in_a_minute_are_a_fight() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut drift = Fights::default();
        for second in 0..5 {
            drift.record(&id("a"), Some("mallory".into()), at(second));
        }
        assert!(!drift.is_fight(&id("a")) && drift.problems().next().is_none());
        drift.record(&id("a"), None, at(6));
        assert!(drift.is_fight(&id("a")) && drift.has_fights());
        // Slow changes of another object are not a fight.
        for change in 0..20 {
            drift.record(&id("b"), None, at(change * 20));
        }
        assert!(!drift.is_fight(&id("b")));
    }

    #[test]
    fn fight_that_is_corrected_slowly_lasts_until_it_is_calm() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut drift = Fights::default();
        for second in 0..6 {
            drift.record(&id("a"), Some("mallory".into()), at(second));
        }
        let problems: Vec<Problem> = drift.problems().collect();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].code, Code::ResourceFight);
        assert!(problems[0].message.contains("\"mallory\""));
        drift.record(&id("a"), None, at(40));
        drift.forget_calm(at(100));
        assert_eq!(drift.problems().count(), 1);
        drift.forget_calm(at(161));
        assert!(drift.problems().next().is_none() && !drift.has_fights());
    }
}
