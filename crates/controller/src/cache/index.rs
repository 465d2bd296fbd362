//! A secondary index: which objects have an entry.

use std::collections::{BTreeSet, HashMap};

use crate::Name;

/// The names of the objects with an entry, and the entries of each object.
#[derive(Default)]
pub struct Index {
    // Most entries have one name: one tree of pairs takes a fraction of a set for each entry.
    names: BTreeSet<(u64, Name)>,
    entries: HashMap<Name, Box<[u64]>>,
}

impl Index {
    /// The names with this entry, in order.
    pub fn get(&self, entry: u64) -> Vec<Name> {
        let from = self.names.range((entry, Name::default())..);
        from.take_while(|(found, _)| *found == entry)
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// Replaces the entries of one object.
    pub fn set(&mut self, name: &Name, entries: &[u64]) {
        if self.entries.get(name).map_or(&[][..], |known| known) == entries {
            return;
        }
        for entry in self.entries.remove(name).unwrap_or_default() {
            self.names.remove(&(entry, name.clone()));
        }
        self.names
            .extend(entries.iter().map(|entry| (*entry, name.clone())));
        if !entries.is_empty() {
            self.entries.insert(name.clone(), entries.into());
        }
    }
}
