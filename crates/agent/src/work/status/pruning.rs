//! What a work is to take away and is still there. Its status says so: nobody shall take for revoked what is not.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::work::{AppliedResource, PRUNED_CONDITION, PRUNED_REASON};
use writ_controller::{
    Error,
    condition::{self, Wanted, clip},
};

/// How many objects the condition names, and how much it says of each.
const MAX_NAMED: usize = 10;
const MAX_WORDS: usize = 500;

/// What is said of an object that is still there.
pub fn words(resource: &AppliedResource, error: Option<&Error>) -> String {
    let AppliedResource {
        resource,
        namespace,
        name,
        ..
    } = resource;
    let place = if namespace.is_empty() { "" } else { "/" };
    let why = error.map_or_else(
        || "not gone yet: somebody's finalizer or a grace period may hold it".to_owned(),
        |error| clip(&error.to_string(), MAX_WORDS),
    );
    format!("{resource} {namespace}{place}{name}: {why}")
}

/// Says what is left, or that nothing is.
pub fn tell(conditions: &mut Vec<Condition>, left: &[String], generation: Option<i64>, now: Timestamp) {
    if left.is_empty() {
        condition::remove(conditions, PRUNED_CONDITION);
        return;
    }
    let mut named: Vec<String> = left.iter().take(MAX_NAMED).cloned().collect();
    if left.len() > MAX_NAMED {
        // Without their number: each that goes would be a write.
        named.push("and more".into());
    }
    let message = format!("still there: {}", named.join("; "));
    let wanted = Wanted::new(PRUNED_CONDITION, false, PRUNED_REASON, message);
    condition::set(conditions, &wanted, generation, now);
}

/// What is left of works that are being deleted, by their names.
#[derive(Default)]
pub struct Left {
    by_work: Mutex<HashMap<String, Vec<String>>>,
}

impl Left {
    /// Takes in what is left of a work; whether that is news.
    pub fn set(&self, work: &str, left: Vec<String>) -> bool {
        let mut by_work = self.by_work.lock().unwrap_or_else(PoisonError::into_inner);
        by_work.insert(work.to_owned(), left.clone()) != Some(left)
    }

    /// What is left of a work; `None` as long as nobody has looked.
    pub fn of(&self, work: &str) -> Option<Vec<String>> {
        let by_work = self.by_work.lock().unwrap_or_else(PoisonError::into_inner);
        by_work.get(work).cloned()
    }

    /// Forgets a work that is gone.
    pub fn forget(&self, work: &str) {
        let mut by_work = self.by_work.lock().unwrap_or_else(PoisonError::into_inner);
        by_work.remove(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, resource: &str) -> AppliedResource {
        AppliedResource {
            group: group.into(),
            resource: resource.into(),
            namespace: "n".into(),
            name: "x".into(),
            ..AppliedResource::default()
        }
    }

    #[test]
    fn what_is_left_is_told_in_few_words() {
        let error = Error::Invalid("no".into());
        let binding = resource("rbac.authorization.k8s.io", "rolebindings");
        assert_eq!(
            words(&binding, None),
            "rolebindings n/x: not gone yet: somebody's finalizer or a grace period may hold it"
        );
        assert_eq!(words(&binding, Some(&error)), "rolebindings n/x: no");

        let mut conditions = Vec::new();
        let many: Vec<String> = (0..12).map(|n| format!("o{n}")).collect();
        tell(&mut conditions, &many, Some(1), Timestamp::UNIX_EPOCH);
        let said = conditions[0].message.as_str();
        assert!(said.contains("o9; and more") && !said.contains("o10"), "{said}");
        tell(&mut conditions, &[], Some(1), Timestamp::UNIX_EPOCH);
        assert_eq!(conditions, []);
    }
}
