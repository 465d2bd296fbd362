//! What stays for a moment after it left the plan, so that access is not lost on the way:
//!
//! * Selectors are evaluated in the other mode now: what the one mode delivered stays until the other has taken over.
//! * An object of a named namespace is selected now: it stays until the agent has expanded the grant.
//! * A binding got another name: the old one stays until the new one exists.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::work::ManifestCondition;
use writ_controller::condition;

use super::{
    build::build,
    manifest::{self, grants_the_same},
};
use crate::cluster_permission::{
    model::{Body, Built, Content, Item, ObjectId, Observation, TypedManifest},
    reports::{self, Feedback},
    spec::{Entry, references::uses_selector},
};

/// The manifests that the works carry and the plan does not want.
type Dropped = BTreeMap<ObjectId, TypedManifest>;

/// What is dropped and still needed for a moment.
pub fn lingering(seen: &Observation, entries: &[Entry<'_>], built: &Built) -> Vec<Item> {
    let wanted: BTreeSet<&ObjectId> = built.items.iter().map(|item| &item.id).collect();
    let carried = seen
        .manifests()
        .map(|manifest| (manifest::id(manifest), manifest));
    let dropped: Dropped = carried
        .filter(|(id, _)| !wanted.contains(id))
        .filter_map(|(id, manifest)| Some((id, manifest::read(manifest)?)))
        .collect();
    if dropped.is_empty() {
        return Vec::new();
    }
    let mut lingering = of_other_mode(seen, entries, built, &dropped);
    lingering.extend(renamed(seen, built, &dropped));
    let ids: BTreeSet<ObjectId> = lingering.iter().map(|item| item.id.clone()).collect();
    let selected_now = selected_now(seen, built, &dropped);
    lingering.extend(selected_now.filter(|item| !ids.contains(&item.id)));
    lingering
}

/// The objects of the other mode of selecting that are still needed: exactly what is granted now and what the spec still means.
fn of_other_mode(seen: &Observation, entries: &[Entry<'_>], built: &Built, dropped: &Dropped) -> Vec<Item> {
    if !uses_selector(&seen.permission) {
        return Vec::new();
    }
    let other = build(seen, entries, seen.selected_by.other());
    let still_meant = other.items.into_iter().filter(|item| {
        let carried = dropped.get(&item.id);
        carried.is_some_and(|carried| grants_the_same(carried, &item.manifest))
    });
    still_meant
        .filter(|item| {
            let mut wanted = built.items.iter().filter(|new| new.field == item.field);
            !wanted.all(|new| is_processed(seen, new))
        })
        .collect()
}

/// Bindings that got another name and nothing else, until the agent has made them under the new one. While it cannot, the old
/// one grants what the new one is to grant, and nothing else.
fn renamed<'a>(
    seen: &'a Observation,
    built: &'a Built,
    dropped: &'a Dropped,
) -> impl Iterator<Item = Item> + 'a {
    let dropped = dropped.iter().filter(|(id, _)| is_applied(seen, id));
    dropped.filter_map(|(id, carried)| {
        let new = built.items.iter().find(|new| {
            (&id.kind, &id.name.namespace) == (&new.id.kind, &new.id.name.namespace)
                && is_same_but_for_its_name(carried, &new.manifest)
                && !is_made(seen, new)
        })?;
        Some(kept(id, carried, new))
    })
}

/// Objects of a named namespace that a grant is to make now, until the agent has expanded the grant: then they are shared, or
/// the selector does not select that namespace. A grant that cannot be applied is not waited for: what it would select is
/// unknown.
fn selected_now<'a>(
    seen: &'a Observation,
    built: &'a Built,
    dropped: &'a Dropped,
) -> impl Iterator<Item = Item> + 'a {
    let is_expanded = |grant: &Item| {
        report_of(seen, grant).is_some_and(|(report, applied)| {
            applied.status != "True" || Feedback::of(Some(report)).is_current()
        })
    };
    let dropped = dropped.iter().filter(|(id, _)| is_applied(seen, id));
    dropped.filter_map(move |(id, carried)| {
        let grant = built.items.iter().find(|item| {
            let makes = item.grant().is_some_and(|grant| {
                let object = TypedManifest {
                    annotations: BTreeMap::new(),
                    body: Body::Object(grant.content.clone()),
                };
                (grant.kind(), &*grant.name) == (&*id.kind, &*id.name.name)
                    && grants_the_same(carried, &object)
            });
            makes && !is_expanded(item)
        })?;
        Some(kept(id, carried, grant))
    })
}

/// What a work carries now, as an item of the entry that wants the new object.
fn kept(id: &ObjectId, carried: &TypedManifest, new: &Item) -> Item {
    Item {
        id: id.clone(),
        field: new.field.clone(),
        binds_own_role: new.binds_own_role,
        manifest: carried.clone(),
    }
}

fn is_same_but_for_its_name(one: &TypedManifest, other: &TypedManifest) -> bool {
    match (&one.body, &other.body) {
        (Body::Object(one @ Content::Binding(..)), Body::Object(other @ Content::Binding(..))) => {
            one == other
        }
        (Body::Grant(one), Body::Grant(other)) => {
            let is_binding = matches!(one.content, Content::Binding(..));
            is_binding && (&one.selector, &one.content) == (&other.selector, &other.content)
        }
        _ => false,
    }
}

/// Whether the agent has worked on what is wanted now, successfully or not: what it could not do is reported, and waiting for
/// it would keep the other mode for ever.
fn is_processed(seen: &Observation, item: &Item) -> bool {
    report_of(seen, item)
        .is_some_and(|(report, _)| item.grant().is_none() || Feedback::of(Some(report)).is_current())
}

/// Whether the agent has made what is wanted now, wherever it is wanted.
fn is_made(seen: &Observation, item: &Item) -> bool {
    report_of(seen, item).is_some_and(|(report, applied)| {
        let feedback = Feedback::of(Some(report));
        let is_everywhere =
            || feedback.is_current() && feedback.number("selected") == feedback.number("ready");
        applied.status == "True" && (item.grant().is_none() || is_everywhere())
    })
}

/// Whether the agent has applied an object, as it is now or as it was. No access is lost with an object that was not applied.
fn is_applied(seen: &Observation, id: &ObjectId) -> bool {
    let mut reports = seen.works.values().flat_map(|work| reports::of(work));
    reports.any(|report| reports::id(report) == *id && condition::is_true(&report.conditions, "Applied"))
}

/// The report of the agent on exactly what is wanted now.
fn report_of<'a>(seen: &'a Observation, item: &Item) -> Option<(&'a ManifestCondition, &'a Condition)> {
    let wanted = manifest::write(item);
    seen.works.values().find_map(|work| {
        let mut manifests = work.spec.workload.manifests.iter();
        manifests.find(|manifest| manifest.0 == wanted)?;
        let report = reports::of(work).find(|report| reports::id(report) == item.id)?;
        let applied = condition::find(&report.conditions, "Applied")?;
        (applied.observed_generation >= work.metadata.generation).then_some((report, applied))
    })
}
