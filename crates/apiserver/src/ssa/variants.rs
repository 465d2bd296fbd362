//! Owners may have written in another version than that of a request. What they own is looked at in theirs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fieldset::Set;
use super::managed::{Managers, Owned};
use super::types::{TypeRef, with_named_fields};
use super::{META, Manager, walk};
use crate::schema::Schema;

/// The object in another version, in which it may have other fields.
#[derive(Debug)]
pub struct Variant {
    /// That version.
    pub api_version: String,
    /// What the object is made of there.
    pub schema: Schema,
    /// From the version of the request to this one.
    pub to: fn(&mut Value),
    /// And back.
    pub from: fn(&mut Value),
    /// The subresources that protect its owners from the loss of fields that a request in another version cannot
    /// change, whatever it says of them. Custom resources themselves do not.
    pub protected_by: &'static [&'static str],
}

fn converted(value: &Value, how: Option<fn(&mut Value)>) -> Value {
    let mut value = value.clone();
    if let Some(how) = how {
        how(&mut value);
    }
    value
}

impl<'a> Manager<'a> {
    /// The variant of a version; none for those in which the object is as in the request.
    pub(super) fn variant(&self, api_version: &str) -> Option<&'a Variant> {
        self.other_variants()
            .find(|variant| variant.api_version == api_version)
    }

    fn other_variants(&self) -> impl Iterator<Item = &'a Variant> {
        let own = self.api_version;
        self.variants
            .iter()
            .filter(move |variant| variant.api_version != own)
    }
}

/// What a write changed, in the request's version and in all others that somebody owns fields in.
pub(super) struct Changes<'a> {
    pub own: walk::Comparison,
    others: BTreeMap<&'a str, walk::Comparison>,
}

impl<'a> Changes<'a> {
    pub fn new(
        old: &Value,
        new: &Value,
        manager: &Manager<'a>,
        ty: TypeRef<'_>,
        managers: &Managers,
    ) -> Self {
        let is_used = |variant: &&Variant| {
            let mut owners = managers.fields.values();
            owners.any(|owned| owned.api_version == variant.api_version)
        };
        let others = manager.other_variants().filter(is_used).map(|variant| {
            let [old, new] = [old, new].map(|value| converted(value, Some(variant.to)));
            let is_protected = variant.protected_by.contains(&manager.subresource);
            let ignored = if is_protected { manager.ignored } else { &[] };
            let seen = compare(&old, &new, ignored, type_in(Some(variant), ty));
            (variant.api_version.as_str(), seen)
        });
        Self {
            own: compare(old, new, manager.ignored, ty),
            others: others.collect(),
        }
    }

    /// As an owner sees it.
    pub fn to(&self, owned: &Owned) -> &walk::Comparison {
        self.others.get(owned.api_version.as_str()).unwrap_or(&self.own)
    }
}

fn compare(old: &Value, new: &Value, ignored: &[&str], ty: TypeRef<'_>) -> walk::Comparison {
    let comparison = walk::compare(old, new, ty);
    walk::Comparison {
        removed: comparison.removed.without_fields(ignored),
        modified: comparison.modified.without_fields(ignored),
        added: comparison.added.without_fields(ignored),
        unreadable: comparison.unreadable,
    }
}

/// The type in a variant, or that of the request.
pub(super) fn type_in<'a>(variant: Option<&'a Variant>, own: TypeRef<'a>) -> TypeRef<'a> {
    variant.map_or(own, |variant| TypeRef::Root {
        schema: &variant.schema,
        meta: &META,
    })
}

fn name(variant: Option<&Variant>) -> Option<&str> {
    variant.map(|variant| variant.api_version.as_str())
}

/// From one variant to another, each of which may be that of the request.
fn convert(value: &Value, from: Option<&Variant>, to: Option<&Variant>) -> Value {
    if name(from) == name(to) {
        return value.clone();
    }
    let own = converted(value, from.map(|variant| variant.from));
    converted(&own, to.map(|variant| variant.to))
}

/// Removes what the manager applied last time and nobody wants now.
pub(super) fn prune<'a>(
    merged: &Value,
    managers: &Managers,
    last: &Owned,
    manager: &Manager<'a>,
    ty: TypeRef<'a>,
) -> Value {
    let named = |set: &Set, ty: TypeRef<'_>| with_named_fields(set, Some(ty));
    let fields = |value: &Value, ty: TypeRef<'_>| named(&walk::field_set(value, ty), ty);
    let first = manager.variant(&last.api_version);
    let start = convert(merged, None, first);
    let last_type = type_in(first, ty);
    let mut pruned = walk::remove(&start, &named(&last.set, last_type), last_type);
    // Add back what anybody owns, the manager itself included; first in the version in which something was taken away.
    let mut versions: Vec<(Option<&Variant>, Set)> = vec![(first, Set::default())];
    for owner in managers.fields.values() {
        let variant = manager.variant(&owner.api_version);
        match versions.iter_mut().find(|(have, _)| name(*have) == name(variant)) {
            Some((_, set)) => *set = set.union(&owner.set),
            None => versions.push((variant, owner.set.clone())),
        }
    }
    let (mut at, mut whole) = (first, start.clone());
    for (variant, owned) in versions {
        whole = convert(&whole, at, variant);
        pruned = convert(&pruned, at, variant);
        at = variant;
        let ty = type_in(at, ty);
        let keep = fields(&pruned, ty).union(&named(&owned, ty));
        pruned = walk::remove(&whole, &fields(&whole, ty).difference(&keep), ty);
    }
    // Add back what the manager did not own.
    let pruned = fields(&convert(&pruned, at, first), last_type);
    let gone = fields(&start, last_type)
        .difference(&pruned)
        .intersection(&named(&last.set, last_type));
    convert(&walk::remove(&start, &gone, last_type), first, None)
}
