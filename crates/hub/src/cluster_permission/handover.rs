//! Pure: what stays for a moment so that nobody loses access on the way. Selectors change hands, from the hub to the agent or
//! back: what the one delivered stays until the other has taken over. A binding gets another name: the old one stays until
//! the new one is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use writ_api::work::ManifestCondition;
use writ_runtime::condition;

use super::{
    build::{Built, Id, Item, Purpose, build},
    manifest::grant_config,
    named::uses_selector,
    neighbours::grants_the_same,
    plan::Observation,
    report::{Feedback, id},
};

/// What is dropped and still needed for a moment.
pub fn lingering(seen: &Observation<'_>, built: &Built) -> Vec<Item> {
    let manifests = seen.works.values().flat_map(|w| &w.spec.workload.manifests);
    let wanted: BTreeSet<&Id> = built.items.iter().map(|item| &item.id).collect();
    let dropped: BTreeMap<Id, &Value> = manifests
        .map(|manifest| (Id::of(&manifest.0), &manifest.0))
        .filter(|(id, _)| !wanted.contains(id))
        .collect();
    if dropped.is_empty() {
        return Vec::new();
    }
    let mut lingering = former_way(seen, built, &dropped);
    lingering.extend(former_names(seen, built, &dropped));
    lingering
}

/// The objects of the other way of selecting that are still needed.
fn former_way(seen: &Observation<'_>, built: &Built, dropped: &BTreeMap<Id, &Value>) -> Vec<Item> {
    if !uses_selector(seen.permission) {
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
            let there = dropped.get(&item.id);
            there.is_some_and(|manifest| grants_the_same(manifest, &item.manifest))
        })
        .filter(|item| {
            let mut wanted = built.items.iter().filter(|new| new.field == item.field);
            !wanted.all(|new| taken_over(seen, new))
        })
        .collect()
}

/// Bindings that got another name and nothing else, until the agent has made them under the new one. Of those that the agent
/// does not say to be there nobody can lose anything.
fn former_names(seen: &Observation<'_>, built: &Built, dropped: &BTreeMap<Id, &Value>) -> Vec<Item> {
    let renamed = |id: &Id, manifest: &Value, new: &Item| {
        let place = (&id.kind, &id.namespace) == (&new.id.kind, &new.id.namespace);
        place && new.purpose != Purpose::Check && same_but_the_name(manifest, &new.manifest)
    };
    let there = |old: &Id| {
        let mut reports = reports(seen).filter(|(report, _)| id(report) == *old);
        reports.any(|(report, _)| condition::is_true(&report.conditions, "Applied"))
    };
    let dropped = dropped.iter().filter(|(id, _)| there(id));
    let lingering = dropped.filter_map(|(id, manifest)| {
        let mut news = built.items.iter();
        let new = news.find(|new| renamed(id, manifest, new) && !taken_over(seen, new))?;
        Some(Item {
            id: id.clone(),
            field: new.field.clone(),
            purpose: new.purpose,
            manifest: (*manifest).clone(),
            config: (new.purpose == Purpose::Grant).then(|| grant_config(&id.name)),
        })
    });
    lingering.collect()
}

fn same_but_the_name(one: &Value, other: &Value) -> bool {
    let content = |manifest: &Value| {
        let mut content = manifest.get("spec").unwrap_or(manifest).clone();
        let parts = content.as_object_mut()?;
        parts.retain(|part, _| ["namespaceSelector", "roleRef", "subjects"].contains(&part.as_str()));
        parts.contains_key("roleRef").then_some(content)
    };
    content(one).is_some_and(|one| content(other) == Some(one))
}

/// Whether the agent has worked on what is wanted now. Whether it could is another question: what it could not do is
/// reported, and waiting for it would keep the old way for ever.
fn taken_over(seen: &Observation<'_>, item: &Item) -> bool {
    reports(seen).any(|(report, generation)| {
        let applied = condition::find(&report.conditions, "Applied");
        id(report) == item.id
            && applied.is_some_and(|applied| applied.observed_generation >= generation)
            && (item.purpose != Purpose::Grant || Feedback::of(Some(report)).is_current())
    })
}

/// What the agent says of each object, and the generation of the work that it is about.
fn reports<'a>(seen: &Observation<'a>) -> impl Iterator<Item = (&'a ManifestCondition, Option<i64>)> {
    seen.works.values().flat_map(|work| {
        let all = work.status.iter().flat_map(|s| &s.resource_status.manifests);
        all.map(|report| (report, work.metadata.generation))
    })
}
