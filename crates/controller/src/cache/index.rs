//! A secondary index: which objects have an entry.

use std::collections::{BTreeSet, HashMap};

use crate::Name;

/// The names of the objects with an entry, and the entries of each object.
#[derive(Default)]
pub struct Index {
    names: HashMap<u64, BTreeSet<Name>>,
    entries: HashMap<Name, Box<[u64]>>,
}

impl Index {
    /// The names with this entry, in order.
    pub fn get(&self, entry: u64) -> Vec<Name> {
        self.names.get(&entry).into_iter().flatten().cloned().collect()
    }

    /// Replaces the entries of one object.
    pub fn set(&mut self, name: &Name, entries: &[u64]) {
        if self.entries.get(name).map_or(&[][..], |known| known) == entries {
            return;
        }
        for entry in self.entries.remove(name).unwrap_or_default() {
            if let Some(names) = self.names.get_mut(&entry) {
                names.remove(name);
                if names.is_empty() {
                    self.names.remove(&entry);
                }
            }
        }
        for entry in entries {
            self.names.entry(*entry).or_default().insert(name.clone());
        }
        if !entries.is_empty() {
            self.entries.insert(name.clone(), entries.into());
        }
    }
}
