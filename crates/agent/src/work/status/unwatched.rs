//! What the agent may not watch. A work's status says so: nobody shall rely on a repair that does not come.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::ApiResource;
use writ_api::work::WATCHED_CONDITION;
use writ_controller::condition::{self, Wanted};

use super::MAX_NAMESPACES;
use crate::work::objects::Name;

/// The reason of the condition.
pub const REFUSED: &str = "WatchRefused";

/// How many places the condition names.
const MAX_NAMED: usize = 10;

/// Why changes are not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The agent has not the right.
    Refused,
    /// It has not the right for all namespaces, and there are too many to watch them one by one.
    TooMany,
    /// The server watches no objects of this kind.
    Unwatchable,
}

/// Objects of one kind in one namespace whose changes are not seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blind {
    why: Why,
    resource: String,
    namespace: String,
}

impl Blind {
    /// The objects of this kind beside this one.
    pub fn new(resource: &ApiResource, name: &Name, why: Why) -> Self {
        let dot = if resource.group.is_empty() { "" } else { "." };
        Self {
            why,
            resource: format!("{}{dot}{}", resource.plural, resource.group),
            namespace: name.0.to_string(),
        }
    }

    fn words(&self) -> String {
        let Self {
            resource, namespace, ..
        } = self;
        if namespace.is_empty() {
            resource.clone()
        } else {
            format!("{resource} in namespace {namespace}")
        }
    }
}

/// Says what is not seen, or nothing if all is.
pub fn tell(
    conditions: &mut Vec<Condition>,
    blind: &BTreeSet<Blind>,
    looks: Duration,
    generation: Option<i64>,
    now: Timestamp,
) {
    if blind.is_empty() {
        condition::remove(conditions, WATCHED_CONDITION);
        return;
    }
    let named = |such: Why| {
        let such: Vec<String> = blind
            .iter()
            .filter(|blind| blind.why == such)
            .map(Blind::words)
            .collect();
        let more = if such.len() > MAX_NAMED { " and more" } else { "" };
        let first: Vec<&str> = such.iter().take(MAX_NAMED).map(String::as_str).collect();
        (!first.is_empty()).then(|| format!("{}{more}", first.join(", ")))
    };
    let refused = named(Why::Refused).map(|places| {
        format!(
            "the agent may not list and watch {places}: add these verbs to the role writ:agent:deliver, or bind it there"
        )
    });
    let too_many = named(Why::TooMany).map(|places| {
        format!(
            "the agent may not list and watch in all namespaces at once, and watches at most {MAX_NAMESPACES} one by \
             one, which leaves out {places}: bind the role writ:agent:deliver by a ClusterRoleBinding"
        )
    });
    let unwatchable = named(Why::Unwatchable).map(|places| format!("the server offers no watch on {places}"));
    let why: Vec<String> = refused.into_iter().chain(too_many).chain(unwatchable).collect();
    let message = format!(
        "drift is not repaired at once, but looked for every {looks:?}: {}",
        why.join("; ")
    );
    let wanted = Wanted::new(WATCHED_CONDITION, false, REFUSED, message);
    condition::set(conditions, &wanted, generation, now);
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn the_condition_says_what_is_not_seen_and_what_to_do() {
        let kind = |group: &str, plural: &str| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", "X"), plural)
        };
        let blind = |group: &str, plural: &str, namespace: &str, why: Why| {
            Blind::new(&kind(group, plural), &(namespace.into(), "x".into()), why)
        };
        let mut conditions = Vec::new();
        let mut say = |blind: &BTreeSet<Blind>| {
            tell(
                &mut conditions,
                blind,
                Duration::from_mins(5),
                Some(1),
                Timestamp::UNIX_EPOCH,
            );
            conditions.iter().map(|c| c.message.clone()).collect::<Vec<_>>()
        };
        let some = [
            blind("", "configmaps", "a", Why::Refused),
            blind("", "configmaps", "a", Why::Refused),
            blind("apps", "deployments", "b", Why::Refused),
            blind("example.com", "toys", "", Why::Refused),
        ];
        assert_eq!(
            say(&some.into()),
            [
                "drift is not repaired at once, but looked for every 300s: the agent may not list and watch configmaps \
                 in namespace a, deployments.apps in namespace b, toys.example.com: add these verbs to the role \
                 writ:agent:deliver, or bind it there"
            ]
        );
        let many = (0..11).map(|n| blind("", "secrets", &format!("n{n:02}"), Why::TooMany));
        let said = say(&many.collect()).concat();
        assert!(
            said.contains("namespace n09 and more") && !said.contains("n10"),
            "{said}"
        );
        assert!(
            said.contains("ClusterRoleBinding") && said.contains("at most 100"),
            "{said}"
        );
        assert!(say(&BTreeSet::new()).is_empty());
    }
}
