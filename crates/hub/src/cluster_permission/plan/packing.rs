//! Which work carries which object. Sticky: an object stays where it is unless its work grows too large, and an object that
//! moves is dropped by its old work only after the new one has applied it.
//!
//! Objects move only to works with a higher number, so that of two works that hold the same object the new home is the one with
//! the higher number.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use writ_api::work::ManifestWork;
use writ_controller::condition;

use super::{
    manifest::{self, size},
    shrink::shrunk,
};
use crate::cluster_permission::{
    model::{Item, Limits, ObjectId, Part, Problem},
    naming::MAX_PARTS,
    reports,
};

/// A work as it is on the hub.
#[derive(Debug, Default)]
pub struct Carried<'a> {
    /// Its number, from 1.
    pub part: usize,
    /// Its manifests.
    pub manifests: BTreeMap<ObjectId, &'a Value>,
    /// The ones that the agent has applied as they are there.
    pub applied: BTreeSet<ObjectId>,
}

impl<'a> Carried<'a> {
    /// The content of a work.
    pub fn of(part: usize, work: &'a ManifestWork) -> Self {
        let manifests = work.spec.workload.manifests.iter();
        // What a work that is being deleted has applied goes with it.
        let stays = work.metadata.deletion_timestamp.is_none();
        let is_applied = |conditions: &[_]| {
            condition::find(conditions, "Applied")
                .is_some_and(|c| c.status == "True" && c.observed_generation >= work.metadata.generation)
        };
        let applied = reports::of(work).filter(|report| stays && is_applied(&report.conditions));
        Self {
            part,
            manifests: manifests
                .map(|manifest| (manifest::id(&manifest.0), &manifest.0))
                .collect(),
            applied: applied.map(reports::id).collect(),
        }
    }
}

/// An object with the work that is to carry it.
struct Slot<'a> {
    item: &'a Item,
    manifest: Value,
    size: usize,
    order: usize,
}

impl<'a> Slot<'a> {
    fn placed(&self, manifest: Value, at_home: bool) -> Placed<'a> {
        Placed {
            order: self.order,
            item: self.item,
            manifest,
            at_home,
        }
    }
}

/// One manifest of a work in the making.
struct Placed<'a> {
    order: usize,
    item: &'a Item,
    manifest: Value,
    at_home: bool,
}

/// Assigns the objects to works; what fits into none is a problem.
pub fn assign<'a>(
    items: &'a [Item],
    now: &[Carried<'_>],
    limits: Limits,
) -> (BTreeMap<usize, Part>, Vec<(&'a Item, Problem)>) {
    let mut problems = Vec::new();
    let mut homes: BTreeMap<usize, Vec<Slot<'_>>> = BTreeMap::new();
    let mut fresh = Vec::new();
    for (order, item) in items.iter().enumerate() {
        let manifest = manifest::write(item);
        let size = size(&manifest);
        if size > limits.bytes {
            let message = format!(
                "{} has {size} bytes; a work carries at most {}: split it into several",
                item.id, limits.bytes
            );
            problems.push((item, Problem::new(&item.field, message)));
            continue;
        }
        let slot = Slot {
            item,
            manifest,
            size,
            order,
        };
        match now
            .iter()
            .filter(|w| w.manifests.contains_key(&item.id))
            .map(|w| w.part)
            .max()
        {
            Some(part) => homes.entry(part).or_default().push(slot),
            None => fresh.push(slot),
        }
    }

    let mut moving = Vec::new();
    for (part, slots) in &mut homes {
        evict(*part, slots, now, limits, &mut moving);
    }
    for (slot, from) in moving {
        problems.extend(put(slot, from, &mut homes, now, limits).err());
    }
    for slot in fresh {
        problems.extend(put(slot, 0, &mut homes, now, limits).err());
    }
    let parts = homes_to_parts(&homes, now, limits);
    (parts, problems)
}

/// Puts an object into the first work above `above` that has room. A free number has room, so that a deleted work comes back
/// under its name and with its objects.
fn put<'a>(
    slot: Slot<'a>,
    above: usize,
    homes: &mut BTreeMap<usize, Vec<Slot<'a>>>,
    now: &[Carried<'_>],
    limits: Limits,
) -> Result<(), (&'a Item, Problem)> {
    let room = (above + 1..=MAX_PARTS).find(|part| {
        let slots = homes.get(part).map(Vec::as_slice).unwrap_or_default();
        fits(*part, slots, slot.size, &slot.item.id, now, limits)
    });
    let Some(part) = room else {
        let message = format!(
            "{} fits into none of {MAX_PARTS} works: use several permissions",
            slot.item.id
        );
        return Err((slot.item, Problem::new(&slot.item.field, message)));
    };
    homes.entry(part).or_default().push(slot);
    Ok(())
}

/// Takes objects out of a work that has become too large: unchanged ones first, large ones first.
fn evict<'a>(
    part: usize,
    slots: &mut Vec<Slot<'a>>,
    now: &[Carried<'_>],
    limits: Limits,
    moving: &mut Vec<(Slot<'a>, usize)>,
) {
    let too_large = |slots: &[Slot<'_>]| {
        slots.len() > limits.manifests || slots.iter().map(|s| s.size).sum::<usize>() > limits.bytes
    };
    while too_large(slots) {
        let unchanged = |slot: &Slot<'_>| {
            now.iter()
                .filter(|w| w.part == part)
                .any(|w| w.manifests.get(&slot.item.id) == Some(&&slot.manifest))
        };
        let Some(index) = (0..slots.len()).max_by_key(|i| slots.get(*i).map(|s| (unchanged(s), s.size)))
        else {
            return;
        };
        let slot = slots.swap_remove(index);
        moving.push((slot, part));
    }
}

/// Whether an object of this size has room in a work, together with what that work still holds for others.
fn fits(
    part: usize,
    slots: &[Slot<'_>],
    size: usize,
    id: &ObjectId,
    now: &[Carried<'_>],
    limits: Limits,
) -> bool {
    let leaving: Vec<usize> = now
        .iter()
        .filter(|w| w.part == part)
        .flat_map(|w| &w.manifests)
        .filter(|(held, _)| *held != id && !slots.iter().any(|s| s.item.id == **held))
        .map(|(_, manifest)| self::size(manifest))
        .collect();
    slots.len() + leaving.len() < limits.manifests
        && slots.iter().map(|s| s.size).sum::<usize>() + leaving.iter().sum::<usize>() + size <= limits.bytes
}

fn homes_to_parts(
    homes: &BTreeMap<usize, Vec<Slot<'_>>>,
    now: &[Carried<'_>],
    limits: Limits,
) -> BTreeMap<usize, Part> {
    let mut parts: BTreeMap<usize, Vec<Placed<'_>>> = BTreeMap::new();
    // What moves stays in its old work, as far as it is still wanted, until its new work has applied it.
    let mut waits = BTreeSet::new();
    for (home, slots) in homes {
        for slot in slots {
            let id = &slot.item.id;
            let at_home = parts.entry(*home).or_default();
            at_home.push(slot.placed(slot.manifest.clone(), true));
            if now.iter().any(|w| w.part == *home && w.applied.contains(id)) {
                continue;
            }
            for old in now.iter().filter(|w| w.part != *home) {
                let carried = old.manifests.get(id);
                if let Some(manifest) = carried.and_then(|carried| shrunk(carried, &slot.manifest)) {
                    let part = parts.entry(old.part).or_default();
                    part.push(slot.placed(manifest, false));
                    waits.insert(old.part);
                }
            }
        }
    }
    let parts = parts.into_iter().map(|(number, mut placed)| {
        placed.sort_by_key(|placed| placed.order);
        let waits = waits.contains(&number);
        let before = now.iter().find(|w| w.part == number).filter(|_| waits);
        if let Some(before) = before {
            hold_growth(&mut placed, before, limits);
        }
        (number, part_of(placed, waits))
    });
    parts.collect()
}

/// What grew waits until what moves has left, if both together are too much. What shrank is revoked now.
fn hold_growth(placed: &mut Vec<Placed<'_>>, before: &Carried<'_>, limits: Limits) {
    let total: usize = placed.iter().map(|placed| size(&placed.manifest)).sum();
    if total <= limits.bytes && placed.len() <= limits.manifests {
        return;
    }
    placed.retain_mut(|placed| {
        let carried = before.manifests.get(&placed.item.id);
        let kept = carried.and_then(|carried| shrunk(carried, &placed.manifest));
        kept.map(|kept| placed.manifest = kept).is_some()
    });
}

fn part_of(placed: Vec<Placed<'_>>, waits: bool) -> Part {
    let at_home = placed.iter().filter(|placed| placed.at_home);
    Part {
        home: at_home.map(|placed| placed.item.id.clone()).collect(),
        configs: placed.iter().filter_map(|p| manifest::config(p.item)).collect(),
        manifests: placed.into_iter().map(|placed| placed.manifest).collect(),
        waits,
    }
}
