//! Pure: what stays for a moment so that nobody loses access on the way. Selectors change hands, from the hub to the agent or
//! back: what the one delivered stays until the other has taken over. An object of a named namespace is selected now: it
//! stays until the agent has expanded the grant. A binding gets another name: the old one stays until the new one is there.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use writ_api::work::ManifestCondition;
use writ_controller::condition;

use super::{
    build::{Built, Id, Item, Purpose, build},
    manifest::grant_config,
    named::uses_selector,
    neighbours::{grants_the_same, made_by},
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
    let there: BTreeSet<Id> = lingering.iter().map(|item| item.id.clone()).collect();
    let named = formerly_named(seen, built, &dropped);
    lingering.extend(named.into_iter().filter(|item| !there.contains(&item.id)));
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

/// Bindings that got another name and nothing else, until the agent has made them under the new one. As long as it cannot,
/// the old one grants what the new one is to grant, and nothing else. Of those that the agent does not say to be there nobody
/// can lose anything.
fn former_names(seen: &Observation<'_>, built: &Built, dropped: &BTreeMap<Id, &Value>) -> Vec<Item> {
    let renamed = |id: &Id, manifest: &Value, new: &Item| {
        let place = (&id.kind, &id.namespace) == (&new.id.kind, &new.id.namespace);
        place && new.purpose != Purpose::Check && same_but_the_name(manifest, &new.manifest)
    };
    let dropped = dropped.iter().filter(|(id, _)| is_there(seen, id));
    let lingering = dropped.filter_map(|(id, manifest)| {
        let mut news = built.items.iter();
        let new = news.find(|new| renamed(id, manifest, new) && !is_made(seen, new))?;
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

/// Objects of a named namespace that a grant is to make now, until the agent has expanded it: then they are shared, or the
/// selector does not select that namespace. A grant that cannot be applied is not waited for: nobody knows what it selects.
fn formerly_named(seen: &Observation<'_>, built: &Built, dropped: &BTreeMap<Id, &Value>) -> Vec<Item> {
    let expanded = |grant: &Item| {
        said_of(seen, grant).is_some_and(|(report, applied)| {
            applied.status != "True" || Feedback::of(Some(report)).is_current()
        })
    };
    let dropped = dropped.iter().filter(|(id, _)| is_there(seen, id));
    let lingering = dropped.filter_map(|(id, manifest)| {
        let mut grants = built.items.iter().filter(|item| item.purpose == Purpose::Grant);
        let grant = grants.find(|grant| makes(&grant.manifest, id, manifest) && !expanded(grant))?;
        Some(Item {
            id: id.clone(),
            field: grant.field.clone(),
            purpose: Purpose::Deliver,
            manifest: (*manifest).clone(),
            config: None,
        })
    });
    lingering.collect()
}

/// Whether a grant makes this object, as it is, where it selects its namespace.
fn makes(grant: &Value, id: &Id, manifest: &Value) -> bool {
    let part = |name: &str| grant.pointer(&format!("/spec/{name}"));
    let object = json!({
        "kind": id.kind, "metadata": {"namespace": id.namespace, "name": id.name},
        "rules": part("rules"), "roleRef": part("roleRef"), "subjects": part("subjects"),
    });
    let same = made_by(grant).is_some_and(|(kind, name)| kind == id.kind && name == id.name);
    same && grants_the_same(manifest, &object)
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
    said_of(seen, item)
        .is_some_and(|(report, _)| item.purpose != Purpose::Grant || Feedback::of(Some(report)).is_current())
}

/// Whether the agent has made what is wanted now, wherever it is wanted.
fn is_made(seen: &Observation<'_>, item: &Item) -> bool {
    said_of(seen, item).is_some_and(|(report, applied)| {
        let said = Feedback::of(Some(report));
        let everywhere = || said.is_current() && said.number("selected") == said.number("ready");
        applied.status == "True" && (item.purpose != Purpose::Grant || everywhere())
    })
}

/// Whether the agent has applied an object, as it is now or as it was.
fn is_there(seen: &Observation<'_>, old: &Id) -> bool {
    let works = seen.works.values().filter_map(|work| work.status.as_ref());
    let mut reports = works.flat_map(|status| &status.resource_status.manifests);
    reports.any(|report| id(report) == *old && condition::is_true(&report.conditions, "Applied"))
}

/// What the agent says of exactly what is wanted now.
fn said_of<'a>(seen: &Observation<'a>, item: &Item) -> Option<(&'a ManifestCondition, &'a Condition)> {
    seen.works.values().find_map(|work| {
        let mut manifests = work.spec.workload.manifests.iter();
        manifests.find(|manifest| manifest.0 == item.manifest)?;
        let mut reports = work.status.iter().flat_map(|s| &s.resource_status.manifests);
        let report = reports.find(|report| id(report) == item.id)?;
        let applied = condition::find(&report.conditions, "Applied")?;
        (applied.observed_generation >= work.metadata.generation).then_some((report, applied))
    })
}
