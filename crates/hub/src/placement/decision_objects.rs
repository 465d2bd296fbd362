//! The decision objects of a plain placement, changed one cluster at a time.
//!
//! A plain placement chooses every cluster that qualifies, in one group. When one cluster comes or goes, the others need
//! no look: a new cluster enters the first object that is not full, or a new object; a cluster that goes leaves its
//! object, which is deleted with its last cluster. Planning all clusters anew in [`super::plan::groups`] has the same
//! result, and is done wherever this is not enough.

use std::collections::{BTreeMap, BTreeSet};

use writ_api::cluster::placement_decision::MAX_DECISIONS;

use super::model::DecisionObject;

/// The clusters of each object of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionObjects {
    objects: BTreeMap<usize, BTreeSet<String>>,
    slots: BTreeMap<String, usize>,
}

impl DecisionObjects {
    /// The objects of a full plan.
    pub fn of(objects: &[DecisionObject]) -> Self {
        let mut layout = Self::default();
        for object in objects {
            for cluster in &object.clusters {
                layout.slots.insert(cluster.clone(), object.slot);
            }
            layout
                .objects
                .insert(object.slot, object.clusters.iter().cloned().collect());
        }
        layout
    }

    /// How many clusters there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the cluster is in one of the objects.
    pub fn contains(&self, cluster: &str) -> bool {
        self.slots.contains_key(cluster)
    }

    /// The numbers of the objects, in order.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.objects.keys().copied()
    }

    /// One object, as it is to be written.
    pub fn object(&self, slot: usize) -> Option<DecisionObject> {
        let clusters = self.objects.get(&slot)?;
        Some(DecisionObject {
            slot,
            clusters: clusters.iter().cloned().collect(),
            ..DecisionObject::default()
        })
    }

    /// Whether there is such an object.
    pub fn has(&self, slot: usize) -> bool {
        self.objects.contains_key(&slot)
    }

    /// Whether the object holds exactly these clusters.
    pub fn holds<'a>(&self, slot: usize, clusters: impl ExactSizeIterator<Item = &'a str>) -> bool {
        self.objects.get(&slot).is_some_and(|known| {
            known.len() == clusters.len() && clusters.into_iter().all(|cluster| known.contains(cluster))
        })
    }

    /// Adds or removes a cluster; returns the number of the object that changes, which may be new or gone. `None` if no
    /// cluster would be left: then a full plan is needed.
    pub fn change(&mut self, cluster: &str, wanted: bool) -> Option<usize> {
        if wanted {
            let slot = self.first_with_room();
            self.objects.entry(slot).or_default().insert(cluster.to_owned());
            self.slots.insert(cluster.to_owned(), slot);
            return Some(slot);
        }
        let slot = *self.slots.get(cluster).filter(|_| self.slots.len() > 1)?;
        self.slots.remove(cluster);
        if let Some(clusters) = self.objects.get_mut(&slot) {
            clusters.remove(cluster);
            if clusters.is_empty() {
                self.objects.remove(&slot);
            }
        }
        Some(slot)
    }

    /// The first number whose object is not full; a number without an object counts.
    fn first_with_room(&self) -> usize {
        let full = |slot: &usize| {
            self.objects
                .get(slot)
                .is_some_and(|clusters| clusters.len() >= MAX_DECISIONS)
        };
        // Of one number more than there are objects, at least one is free.
        let last = self.objects.len();
        (0..last).find(|slot| !full(slot)).unwrap_or(last)
    }
}
