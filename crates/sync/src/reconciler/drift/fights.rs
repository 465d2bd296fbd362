//! Objects that another writer changes again and again. They are corrected at the pace of failures, and the status names the
//! other writer.

use std::collections::BTreeMap;

use tokio::time::Instant;
use writ_controller::{DriftBackoff, ObjectId};

use crate::reconciler::{
    error::{Code, Problem},
    object::full_name,
};

/// So many corrections of an object in a minute are a fight.
const FIGHT: u8 = 6;

/// The recent corrections of the objects of a sync.
#[derive(Default)]
pub struct Fights {
    objects: BTreeMap<ObjectId, Corrections>,
}

struct Corrections {
    backoff: DriftBackoff,
    /// The last known field manager of the other writer.
    by: Option<String>,
}

impl Fights {
    /// Records that a change of another writer was corrected.
    pub fn record(&mut self, id: &ObjectId, by: Option<String>, now: Instant) {
        let corrections = self.objects.entry(id.clone()).or_insert(Corrections {
            backoff: DriftBackoff::new(FIGHT),
            by: None,
        });
        corrections.backoff.count(now);
        corrections.by = by.or(corrections.by.take());
    }

    /// Whether another writer fights over an object.
    pub fn is_fight(&self, id: &ObjectId, now: Instant) -> bool {
        let corrections = self.objects.get(id);
        corrections.is_some_and(|corrections| corrections.backoff.is_fight(now))
    }

    /// Whether there is any fight.
    pub fn is_any(&self, now: Instant) -> bool {
        self.objects
            .values()
            .any(|corrections| corrections.backoff.is_fight(now))
    }

    /// Forgets objects that were not corrected for a while.
    pub fn forget_calm(&mut self, now: Instant) {
        self.objects
            .retain(|_, corrections| !corrections.backoff.is_calm(now));
    }

    /// Keeps only these objects.
    pub fn retain(&mut self, keep: impl Fn(&ObjectId) -> bool) {
        self.objects.retain(|id, _| keep(id));
    }

    /// The problem that each fight is.
    pub fn problems(&self, now: Instant) -> impl Iterator<Item = Problem> {
        let fights = self
            .objects
            .iter()
            .filter(move |(_, corrections)| corrections.backoff.is_fight(now));
        fights.map(|(id, corrections)| {
            let writer = corrections.by.as_deref().map_or_else(
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

    #[test]
    fn fight_names_the_last_known_writer_until_it_is_calm() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let id = ObjectId {
            kind: "ConfigMap".into(),
            name: Name::global("a"),
            ..ObjectId::default()
        };
        let mut fights = Fights::default();
        for second in 0..5 {
            fights.record(&id, Some("mallory".into()), at(second));
        }
        assert!(!fights.is_any(at(5)) && fights.problems(at(5)).next().is_none());
        // The writer of a deletion is not known.
        fights.record(&id, None, at(6));
        assert!(fights.is_fight(&id, at(6)) && fights.is_any(at(6)));
        let problem = fights.problems(at(6)).next().unwrap();
        assert_eq!(problem.code, Code::ResourceFight);
        assert!(problem.message.contains("\"mallory\""));
        fights.record(&id, None, at(40));
        fights.forget_calm(at(100));
        assert!(fights.is_fight(&id, at(100)));
        assert!(!fights.is_any(at(161)) && fights.problems(at(161)).next().is_none());
        fights.forget_calm(at(161));
        assert!(fights.objects.is_empty());
    }
}
