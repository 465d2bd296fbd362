//! Which work carries which object. Sticky: an object stays where it is unless its work grows too large, and one
//! that moves is dropped by its old work only after the new one has applied it.
//!
//! Objects move only to works with a higher number, so that two works that hold the same object tell by
//! themselves which one is the new home.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use writ_api::work::ManifestConfig;

use super::{
    build::{Id, Item},
    held::held,
    names::MAX_PARTS,
    validate::Problem,
};

/// How much one work may carry.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all manifests together.
    pub bytes: usize,
    /// Number of manifests.
    pub manifests: usize,
}

impl Limits {
    /// Where admission allows so many bytes of manifests. A part is left to its way of counting, and no work has more than
    /// OCM's webhook would allow, which may be there too.
    pub fn within(admission: usize) -> Self {
        let reserve = 12_000.min(admission / 40);
        Self {
            bytes: (admission - reserve).min(500_000),
            manifests: 500,
        }
    }
}

/// A work as it is on the hub.
#[derive(Debug, Default)]
pub struct Carried<'a> {
    /// Its number, from 1.
    pub part: usize,
    /// Its manifests.
    pub manifests: BTreeMap<Id, &'a Value>,
    /// The ones that the agent has applied as they are there.
    pub applied: BTreeSet<Id>,
}

/// A work as it shall be.
#[derive(Debug, Default, PartialEq)]
pub struct Part {
    /// Its manifests, in the order of the spec.
    pub manifests: Vec<Value>,
    /// How the agent treats them.
    pub configs: Vec<ManifestConfig>,
    /// The objects whose home this work is.
    pub home: BTreeSet<Id>,
    /// Whether something waits here until an object has moved.
    pub waits: bool,
}

struct Slot<'a> {
    item: &'a Item,
    size: usize,
    order: usize,
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
        let size = size(&item.manifest);
        if size > limits.bytes {
            let message = format!(
                "{} has {size} bytes; a work carries at most {}: split it into several",
                item.id, limits.bytes
            );
            problems.push((item, Problem::new(&item.field, message)));
            continue;
        }
        let slot = Slot { item, size, order };
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

/// Puts an object into the first work above `above` that has room. A number that is free has room, so that a work which
/// somebody deleted comes back under its name and with what it had: the first one's is upstream's.
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
                .any(|w| w.manifests.get(&slot.item.id) == Some(&&slot.item.manifest))
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
fn fits(part: usize, slots: &[Slot<'_>], size: usize, id: &Id, now: &[Carried<'_>], limits: Limits) -> bool {
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
    let mut parts: BTreeMap<usize, Vec<(usize, &Item, Value, bool)>> = BTreeMap::new();
    for (part, slots) in homes {
        for slot in slots {
            parts
                .entry(*part)
                .or_default()
                .push((slot.order, slot.item, slot.item.manifest.clone(), true));
        }
    }
    // What moves stays in its old work, as far as it is still wanted, until its new work has applied it.
    let mut waits = BTreeSet::new();
    for (home, slots) in homes {
        for slot in slots {
            let arrived = now
                .iter()
                .any(|w| w.part == *home && w.applied.contains(&slot.item.id));
            for old in now.iter().filter(|w| w.part != *home && !arrived) {
                let there = old.manifests.get(&slot.item.id);
                if let Some(manifest) = there.and_then(|there| held(there, &slot.item.manifest)) {
                    let part = parts.entry(old.part).or_default();
                    part.push((slot.order, slot.item, manifest, false));
                    waits.insert(old.part);
                }
            }
        }
    }
    parts
        .into_iter()
        .map(|(number, mut entries)| {
            entries.sort_by_key(|(order, ..)| *order);
            // What grew waits until what moves has left, if both together are too much. Nothing else waits: what
            // shrank revokes now.
            let total =
                |entries: &[(usize, &Item, Value, bool)]| entries.iter().map(|e| size(&e.2)).sum::<usize>();
            let before = now.iter().find(|w| w.part == number);
            let crowded = waits.contains(&number)
                && (total(&entries) > limits.bytes || entries.len() > limits.manifests);
            if let (true, Some(before)) = (crowded, before) {
                entries.retain_mut(|(_, item, manifest, _)| {
                    let there = before.manifests.get(&item.id);
                    let kept = there.and_then(|there| held(there, manifest));
                    kept.map(|kept| *manifest = kept).is_some()
                });
            }
            let part = Part {
                home: entries.iter().filter(|e| e.3).map(|e| e.1.id.clone()).collect(),
                configs: entries.iter().filter_map(|e| e.1.config.clone()).collect(),
                manifests: entries.into_iter().map(|e| e.2).collect(),
                waits: waits.contains(&number),
            };
            (number, part)
        })
        .collect()
}

/// As OCM counts: the text, and what encloses it in a binary message.
fn size(manifest: &Value) -> usize {
    let text = manifest.to_string().len();
    text + 1 + 5
}
