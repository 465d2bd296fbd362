//! The condition `Pruned`: which dropped objects still exist. What they grant is not revoked yet, and the status says so.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::work::{AppliedResource, PRUNED_CONDITION, PRUNED_REASON};
use writ_controller::{
    Error,
    condition::{self, Wanted, clip},
};

/// How many objects the condition names, and the longest reason for each.
const MAX_NAMED: usize = 10;
const MAX_REASON: usize = 500;

/// Why an object still exists, for the condition.
pub fn describe_still_present(record: &AppliedResource, error: Option<&Error>) -> String {
    let AppliedResource {
        resource,
        namespace,
        name,
        ..
    } = record;
    let slash = if namespace.is_empty() { "" } else { "/" };
    let why = error.map_or_else(
        || "not gone yet: a finalizer or a grace period may hold it".to_owned(),
        |error| clip(&error.to_string(), MAX_REASON),
    );
    format!("{resource} {namespace}{slash}{name}: {why}")
}

/// Sets the condition, or removes it if no dropped object is left.
pub fn set_pruned(
    conditions: &mut Vec<Condition>,
    still_present: &[String],
    generation: Option<i64>,
    now: Timestamp,
) {
    if still_present.is_empty() {
        condition::remove(conditions, PRUNED_CONDITION);
        return;
    }
    let mut named: Vec<String> = still_present.iter().take(MAX_NAMED).cloned().collect();
    if still_present.len() > MAX_NAMED {
        // Without their number: each object that goes would cause a write.
        named.push("and more".into());
    }
    let message = format!("still there: {}", named.join("; "));
    let wanted = Wanted::new(PRUNED_CONDITION, false, PRUNED_REASON, message);
    condition::set(conditions, &wanted, generation, now);
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
    fn condition_names_the_first_objects_and_why_they_exist() {
        let error = Error::Invalid("no".into());
        let binding = resource("rbac.authorization.k8s.io", "rolebindings");
        assert_eq!(
            describe_still_present(&binding, None),
            "rolebindings n/x: not gone yet: a finalizer or a grace period may hold it"
        );
        assert_eq!(
            describe_still_present(&binding, Some(&error)),
            "rolebindings n/x: no"
        );

        let mut conditions = Vec::new();
        let many: Vec<String> = (0..12).map(|n| format!("o{n}")).collect();
        set_pruned(&mut conditions, &many, Some(1), Timestamp::UNIX_EPOCH);
        let message = conditions[0].message.as_str();
        assert!(
            message.contains("o9; and more") && !message.contains("o10"),
            "{message}"
        );
        set_pruned(&mut conditions, &[], Some(1), Timestamp::UNIX_EPOCH);
        assert_eq!(conditions, []);
    }
}
