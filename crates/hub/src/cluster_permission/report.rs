//! Pure: the agent's reports on single objects, folded.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use writ_api::{
    rbac::cluster_permission::{
        ClusterObjectStatus, NamespaceSelection, NamespacedObjectStatus, ResourceStatus,
    },
    work::ManifestCondition,
};
use writ_runtime::condition::{self, clip};

use super::{
    build::{Id, Purpose},
    plan::{Observation, Plan},
};

/// How many objects `resourceStatus` lists.
const MAX_OBJECTS: usize = 1000;

/// The object that a report is about.
pub fn id(report: &ManifestCondition) -> Id {
    Id {
        kind: report.resource_meta.kind.clone(),
        namespace: report.resource_meta.namespace.clone(),
        name: report.resource_meta.name.clone(),
    }
}

/// The reports on the objects that are at home in the works where they were made, with the work's generation.
pub fn reports<'a>(
    seen: &Observation<'a>,
    plan: &Plan,
) -> BTreeMap<Id, (&'a ManifestCondition, Option<i64>)> {
    let mut all = BTreeMap::new();
    for (number, work) in seen.works {
        let Some(part) = plan.parts.get(number) else {
            continue;
        };
        for report in work.status.iter().flat_map(|s| &s.resource_status.manifests) {
            let id = id(report);
            if part.home.contains(&id) {
                all.insert(id, (report, work.metadata.generation));
            }
        }
    }
    all
}

/// What became of the namespaces that one entry selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The object is as wanted in all of them.
    Done,
    /// The agent has not reported.
    Pending,
    /// In some it is not.
    Failing,
}

/// What became of each entry with a selector.
pub fn selections(seen: &Observation<'_>, plan: &Plan) -> Vec<(NamespaceSelection, Selected)> {
    let reports = reports(seen, plan);
    let by_hub = plan.built.selected_by_hub.iter().map(|(field, count)| {
        let selection = NamespaceSelection {
            field: field.clone(),
            by: "hub".into(),
            selected: i64::try_from(*count).ok(),
            ready: None,
            message: (*count == 0).then(|| "the selector selects no namespace of the hub".into()),
        };
        (selection, Selected::Done)
    });
    let by_agent = plan
        .built
        .items
        .iter()
        .filter(|item| item.purpose == Purpose::Grant)
        .map(|item| {
            let values = reports
                .get(&item.id)
                .map(|(r, _)| r.status_feedback.values.as_slice());
            let find = |name: &str| values?.iter().find(|v| v.name == name).map(|v| &v.value);
            let number = |name: &str| find(name).and_then(|v| v.integer);
            let observed = number("observedGeneration").filter(|o| Some(*o) >= number("generation"));
            let (selected, ready) = (number("selected"), number("ready"));
            let summary = find("summary")
                .and_then(|v| v.string.clone())
                .filter(|s| !s.is_empty());
            let (state, message) = match (observed, selected) {
                (Some(_), Some(0)) => {
                    let words = "the selector selects no namespace of the managed cluster";
                    (Selected::Done, Some(words.to_owned()))
                }
                (Some(_), Some(_)) if selected == ready => (Selected::Done, summary),
                (Some(_), Some(_)) => (Selected::Failing, summary),
                _ => (Selected::Pending, None),
            };
            let selection = NamespaceSelection {
                field: item.field.clone(),
                by: "agent".into(),
                selected,
                ready,
                message,
            };
            (selection, state)
        });
    by_hub.chain(by_agent).collect()
}

/// One `Applied` condition per object, failing objects first, bounded.
pub fn resources(
    seen: &Observation<'_>,
    plan: &Plan,
    before: Option<&ResourceStatus>,
) -> Option<ResourceStatus> {
    let reports = reports(seen, plan);
    let mut entries: Vec<(Id, Condition)> = plan
        .built
        .items
        .iter()
        .filter(|item| item.purpose == Purpose::Deliver)
        .filter_map(|item| {
            let (report, generation) = reports.get(&item.id)?;
            Some((item.id.clone(), object_condition(report, *generation, seen.now)))
        })
        .collect();
    if entries.is_empty() {
        return None;
    }
    let omitted = entries.len().saturating_sub(MAX_OBJECTS);
    if omitted > 0 {
        entries.sort_by_key(|(_, condition)| condition.status == "True");
        entries.truncate(MAX_OBJECTS);
    }
    let mut status = ResourceStatus {
        omitted: i64::try_from(omitted).ok().filter(|n| *n > 0),
        ..ResourceStatus::default()
    };
    let old = before.map(by_id).unwrap_or_default();
    for (id, mut condition) in entries {
        if let Some(old) = old.get(&id).filter(|old| old.status == condition.status) {
            condition.last_transition_time = old.last_transition_time.clone();
        }
        let condition = vec![condition];
        let Id {
            kind,
            namespace,
            name,
        } = id;
        match kind.as_str() {
            "ClusterRole" => status.cluster_roles.push(ClusterObjectStatus { name, condition }),
            "ClusterRoleBinding" => status
                .cluster_role_bindings
                .push(ClusterObjectStatus { name, condition }),
            "Role" => status.roles.push(NamespacedObjectStatus {
                name,
                namespace,
                condition,
            }),
            _ => status.role_bindings.push(NamespacedObjectStatus {
                name,
                namespace,
                condition,
            }),
        }
    }
    Some(status)
}

fn by_id(status: &ResourceStatus) -> BTreeMap<Id, &Condition> {
    let cluster = [
        ("ClusterRole", &status.cluster_roles),
        ("ClusterRoleBinding", &status.cluster_role_bindings),
    ];
    let namespaced = [("Role", &status.roles), ("RoleBinding", &status.role_bindings)];
    let id = |kind: &str, namespace: &str, name: &str| Id {
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    let mut all = BTreeMap::new();
    for (kind, list) in cluster {
        all.extend(
            list.iter()
                .filter_map(|o| Some((id(kind, "", &o.name), o.condition.first()?))),
        );
    }
    for (kind, list) in namespaced {
        all.extend(
            list.iter()
                .filter_map(|o| Some((id(kind, &o.namespace, &o.name), o.condition.first()?))),
        );
    }
    all
}

/// What the agent says of one object, in the words that upstream's consumers look for.
fn object_condition(report: &ManifestCondition, generation: Option<i64>, now: Timestamp) -> Condition {
    let applied = condition::find(&report.conditions, "Applied");
    let (status, reason, message) = match applied {
        None => (
            "False",
            "FailedGetManifestCondition",
            "Failed to get the manifest condition",
        ),
        Some(c) if c.observed_generation < generation => (
            "Unknown",
            "ApplyPending",
            "the agent has not applied the work as it is now",
        ),
        Some(c) if c.status == "True" => ("True", "AppliedManifestComplete", "Apply manifest complete"),
        Some(c) => (c.status.as_str(), "FailedApplyManifest", c.message.as_str()),
    };
    Condition {
        type_: "Applied".into(),
        status: status.into(),
        reason: reason.into(),
        message: clip(message, 1024),
        observed_generation: None,
        last_transition_time: applied.map_or(Time(now), |c| c.last_transition_time.clone()),
    }
}
