//! Pure: selectors change hands, from the hub to the agent or back. What the one delivered stays until the other has
//! taken over, so that nobody loses access on the way.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use serde_json::Value;
use writ_api::rbac::cluster_permission::RBAC_GROUP;
use writ_runtime::condition;

use super::{
    build::{Built, Id, Item, Purpose, build},
    manifest::parse,
    named::uses_selector,
    plan::Observation,
    report::{Feedback, id},
};

/// The objects of the other way of selecting that are still needed.
pub fn lingering(seen: &Observation<'_>, built: &Built) -> Vec<Item> {
    let manifests = seen.works.values().flat_map(|w| &w.spec.workload.manifests);
    let wanted: BTreeSet<&Id> = built.items.iter().map(|item| &item.id).collect();
    let dropped = manifests.map(|m| &m.0).filter(|m| !wanted.contains(&Id::of(m)));
    if !uses_selector(seen.permission) || dropped.clone().next().is_none() {
        return Vec::new();
    }
    let other = build(&Observation {
        by_agent: !seen.by_agent,
        ..*seen
    });
    let candidates = other.items.into_iter();
    candidates
        // Exactly what is granted now and what the spec still means: nothing that was revoked stays.
        .filter(|item| {
            dropped
                .clone()
                .any(|manifest| grants_the_same(manifest, &item.manifest))
        })
        .filter(|item| !taken_over(seen, built, &item.field))
        .collect()
}

/// Whether two manifests are of one object and grant the same, however the rest of them is written: upstream's carry no
/// annotations and times that are null.
fn grants_the_same(one: &Value, other: &Value) -> bool {
    let content = |manifest: &Value| {
        let rules: Option<Vec<PolicyRule>> = parse(manifest.get("rules"));
        let role: Option<RoleRef> = parse(manifest.get("roleRef"));
        let subjects: Option<Vec<Subject>> = parse(manifest.get("subjects"));
        let subjects = subjects.into_iter().flatten().map(|mut subject| {
            // The API server fills it in.
            let group = subject.api_group.filter(|group| !group.is_empty());
            subject.api_group =
                group.or_else(|| (subject.kind != "ServiceAccount").then(|| RBAC_GROUP.into()));
            subject
        });
        (rules, role, subjects.collect::<Vec<_>>())
    };
    Id::of(one) == Id::of(other) && one.get("spec") == other.get("spec") && content(one) == content(other)
}

/// Whether the agent has worked on everything that this entry wants now. Whether it could is another question: what it
/// could not do is reported, and waiting for it would keep the old way for ever.
fn taken_over(seen: &Observation<'_>, built: &Built, field: &str) -> bool {
    let mut wanted = built.items.iter().filter(|item| item.field == field);
    wanted.all(|item| {
        let reports = seen.works.values().flat_map(|work| {
            let all = work.status.iter().flat_map(|s| &s.resource_status.manifests);
            all.map(|report| (report, work.metadata.generation))
        });
        reports.into_iter().any(|(report, generation)| {
            let applied = condition::find(&report.conditions, "Applied");
            id(report) == item.id
                && applied.is_some_and(|applied| applied.observed_generation >= generation)
                && (item.purpose != Purpose::Grant || Feedback::of(Some(report)).is_current())
        })
    })
}
