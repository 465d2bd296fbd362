//! Pure: selectors change hands, from the hub to the agent or back. What the one delivered stays until the other has
//! taken over, so that nobody loses access on the way.

use std::collections::BTreeSet;

use writ_runtime::condition;

use super::{
    build::{Built, Id, Item, Purpose, build},
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
        .filter(|item| dropped.clone().any(|manifest| *manifest == item.manifest))
        .filter(|item| !taken_over(seen, built, &item.field))
        .collect()
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
