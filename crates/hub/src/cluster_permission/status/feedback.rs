//! What the agent reports of single objects and of namespace grants, folded into the status.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use writ_api::{
    rbac::cluster_permission::{
        ClusterObjectStatus, NamespaceSelection, NamespacedObjectStatus, ResourceStatus,
    },
    work::{ManifestCondition, ManifestWork},
};
use writ_controller::{
    Name,
    condition::{self, clip},
};

use crate::cluster_permission::{
    model::{Item, ObjectId, Observation, Plan, object_id},
    plan::manifest,
    reports::{self, Feedback},
};

/// How many objects `resourceStatus` lists, and how many bytes it may have: the spec needs most of what an object may
/// have as a whole.
const MAX_OBJECTS: usize = 1000;
const MAX_BYTES: usize = 384 * 1024;
/// How many bytes the messages of `namespaceSelections` may have together.
const MAX_SELECTION_BYTES: usize = 128 * 1024;
/// What an entry has besides its texts.
const ENTRY: usize = 256;

/// The reports on objects from the works that are their home, with the work.
pub fn home_reports<'a>(
    seen: &'a Observation,
    plan: &Plan,
) -> BTreeMap<ObjectId, (&'a ManifestCondition, &'a ManifestWork)> {
    let mut all = BTreeMap::new();
    for (number, work) in &seen.works {
        let Some(part) = plan.parts.get(number) else {
            continue;
        };
        for report in reports::of(work) {
            let id = reports::id(report);
            if part.home.contains(&id) {
                all.insert(id, (report, &**work));
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
pub fn selections(seen: &Observation, plan: &Plan) -> Vec<(NamespaceSelection, Selected)> {
    let reports = home_reports(seen, plan);
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
        .filter(|item| item.grant().is_some())
        .map(|item| {
            let said = Feedback::of(reports.get(&item.id).map(|(report, _)| *report));
            let (selected, ready) = (said.number("selected"), said.number("ready"));
            let summary = said.text("summary").map(ToOwned::to_owned);
            let (state, message) = match (said.is_current(), selected) {
                (true, Some(0)) if summary.is_none() => {
                    let words = "the selector selects no namespace of the managed cluster";
                    (Selected::Done, Some(words.to_owned()))
                }
                // It also fails where it could not be removed from a namespace that is not selected any more.
                (true, Some(_)) if selected == ready && summary.is_none() => (Selected::Done, None),
                (true, Some(_)) => (Selected::Failing, summary),
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

/// As the status lists them: failing entries first, and as many messages as have room.
pub fn bounded(mut selections: Vec<(NamespaceSelection, Selected)>) -> Vec<NamespaceSelection> {
    selections.sort_by_key(|(_, state)| *state != Selected::Failing);
    let mut bytes = 0;
    let mut list: Vec<NamespaceSelection> = selections.into_iter().map(|(selection, _)| selection).collect();
    for selection in &mut list {
        bytes += selection.message.as_ref().map_or(0, String::len);
        selection.message = selection.message.take().filter(|_| bytes <= MAX_SELECTION_BYTES);
    }
    list
}

/// One `Applied` condition per object, failing objects first, bounded.
pub fn resources(seen: &Observation, plan: &Plan, before: Option<&ResourceStatus>) -> Option<ResourceStatus> {
    let reports = home_reports(seen, plan);
    let mut entries: Vec<(ObjectId, Condition)> = plan
        .built
        .items
        .iter()
        .filter(|item| item.is_object())
        .filter_map(|item| {
            let (report, work) = reports.get(&item.id)?;
            let mut condition = object_condition(item, report, work, seen.now);
            condition.observed_generation = seen.permission.metadata.generation;
            Some((item.id.clone(), condition))
        })
        .collect();
    if entries.is_empty() {
        return None;
    }
    entries.sort_by_key(|(_, condition)| condition.status == "True");
    let mut bytes = 0;
    let room = entries.iter().take(MAX_OBJECTS).take_while(|(id, condition)| {
        bytes += ENTRY + id.name.namespace.len() + id.name.name.len() + condition.message.len();
        bytes <= MAX_BYTES
    });
    let shown = room.count();
    let omitted = entries.len().saturating_sub(shown);
    entries.truncate(shown);
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
        let Name { namespace, name } = &id.name;
        let (namespace, name) = (namespace.to_string(), name.to_string());
        match &*id.kind {
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

fn by_id(status: &ResourceStatus) -> BTreeMap<ObjectId, &Condition> {
    let cluster = [
        ("ClusterRole", &status.cluster_roles),
        ("ClusterRoleBinding", &status.cluster_role_bindings),
    ];
    let namespaced = [("Role", &status.roles), ("RoleBinding", &status.role_bindings)];
    let mut all = BTreeMap::new();
    for (kind, list) in cluster {
        all.extend(
            list.iter()
                .filter_map(|o| Some((object_id(kind, "", &o.name), o.condition.first()?))),
        );
    }
    for (kind, list) in namespaced {
        all.extend(
            list.iter()
                .filter_map(|o| Some((object_id(kind, &o.namespace, &o.name), o.condition.first()?))),
        );
    }
    all
}

/// What the agent says of one object, in the words that consumers of OCM's status look for.
fn object_condition(
    item: &Item,
    report: &ManifestCondition,
    work: &ManifestWork,
    now: Timestamp,
) -> Condition {
    let applied = condition::find(&report.conditions, "Applied");
    let mut manifests = work.spec.workload.manifests.iter();
    // Where the hub could not write the work, the agent speaks of what was wanted before.
    let wanted = manifest::write(item);
    let written = manifests.any(|manifest| manifest.0 == wanted);
    let stays = work.metadata.deletion_timestamp.is_none();
    let (status, reason, message) = match applied {
        None => (
            "False",
            "FailedGetManifestCondition",
            "Failed to get the manifest condition",
        ),
        Some(_) if !written || !stays => (
            "Unknown",
            "ApplyPending",
            "the work does not hold it yet as it is wanted now",
        ),
        Some(c) if c.observed_generation < work.metadata.generation || reports::applied(work).is_none() => (
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
