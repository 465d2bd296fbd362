//! The condition that lists objects which the agent may not watch: their drift is corrected late.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::work::WATCHED_CONDITION;
use writ_controller::condition::{self, Wanted};

use crate::work::drift::{MAX_NAMESPACES, UnwatchedObjects, UnwatchedReason};

/// The reason of the condition.
pub const REFUSED: &str = "WatchRefused";

/// How many kinds and namespaces the condition names.
const MAX_NAMED: usize = 10;

fn describe(objects: &UnwatchedObjects) -> String {
    let UnwatchedObjects {
        resource, namespace, ..
    } = objects;
    if namespace.is_empty() {
        resource.clone()
    } else {
        format!("{resource} in namespace {namespace}")
    }
}

/// Sets the condition, or removes it if every object is watched.
pub fn set_watched(
    conditions: &mut Vec<Condition>,
    unwatched: &BTreeSet<UnwatchedObjects>,
    poll_every: Duration,
    generation: Option<i64>,
    now: Timestamp,
) {
    if unwatched.is_empty() {
        condition::remove(conditions, WATCHED_CONDITION);
        return;
    }
    let named = |reason: UnwatchedReason| {
        let all: Vec<String> = unwatched
            .iter()
            .filter(|objects| objects.reason == reason)
            .map(describe)
            .collect();
        let more = if all.len() > MAX_NAMED { " and more" } else { "" };
        let first: Vec<&str> = all.iter().take(MAX_NAMED).map(String::as_str).collect();
        (!first.is_empty()).then(|| format!("{}{more}", first.join(", ")))
    };
    let refused = named(UnwatchedReason::Refused).map(|places| {
        format!(
            "the agent may not list and watch {places}: add these verbs to the role writ:agent:deliver, or bind it there"
        )
    });
    let too_many = named(UnwatchedReason::TooMany).map(|places| {
        format!(
            "the agent may not list and watch in all namespaces at once, and watches at most {MAX_NAMESPACES} one by \
             one, which leaves out {places}: bind the role writ:agent:deliver by a ClusterRoleBinding"
        )
    });
    let unwatchable =
        named(UnwatchedReason::Unwatchable).map(|places| format!("the server offers no watch on {places}"));
    let why: Vec<String> = refused.into_iter().chain(too_many).chain(unwatchable).collect();
    let message = format!(
        "drift is not corrected at once, but looked for every {poll_every:?}: {}",
        why.join("; ")
    );
    let wanted = Wanted::new(WATCHED_CONDITION, false, REFUSED, message);
    condition::set(conditions, &wanted, generation, now);
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;
    use writ_controller::Name;

    #[test]
    fn condition_names_unwatched_objects_and_the_way_out() {
        let kind = |group: &str, plural: &str| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", "X"), plural)
        };
        let unwatched = |group: &str, plural: &str, namespace: &str, reason: UnwatchedReason| {
            UnwatchedObjects::beside(&kind(group, plural), &Name::new(namespace, "x"), reason)
        };
        let mut conditions = Vec::new();
        let mut messages = |unwatched: &BTreeSet<UnwatchedObjects>| {
            set_watched(
                &mut conditions,
                unwatched,
                Duration::from_mins(5),
                Some(1),
                Timestamp::UNIX_EPOCH,
            );
            conditions.iter().map(|c| c.message.clone()).collect::<Vec<_>>()
        };
        let some = [
            unwatched("", "configmaps", "a", UnwatchedReason::Refused),
            unwatched("", "configmaps", "a", UnwatchedReason::Refused),
            unwatched("apps", "deployments", "b", UnwatchedReason::Refused),
            unwatched("example.com", "toys", "", UnwatchedReason::Refused),
        ];
        assert_eq!(
            messages(&some.into()),
            [
                "drift is not corrected at once, but looked for every 300s: the agent may not list and watch configmaps \
                 in namespace a, deployments.apps in namespace b, toys.example.com: add these verbs to the role \
                 writ:agent:deliver, or bind it there"
            ]
        );
        let many = (0..11).map(|n| unwatched("", "secrets", &format!("n{n:02}"), UnwatchedReason::TooMany));
        let message = messages(&many.collect()).concat();
        assert!(
            message.contains("namespace n09 and more") && !message.contains("n10"),
            "{message}"
        );
        assert!(
            message.contains("ClusterRoleBinding") && message.contains("at most 100"),
            "{message}"
        );
        assert!(messages(&BTreeSet::new()).is_empty());
    }
}
