//! Interned, counted names: every text of the index is stored once and compared as a number.

use std::collections::HashMap;
use std::sync::Arc;

/// A text known to one [`Names`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(u32);

impl Name {
    /// The wildcard `*`, always present.
    pub(crate) const STAR: Self = Self(0);
    /// No name at all. It is never stored in a rule, a label or a subject, so it equals none of them; as the scope
    /// of a key it says "the cluster".
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[derive(Clone, Debug)]
struct Slot {
    text: Arc<str>,
    uses: u32,
}

/// The table. Uses are counted, so that a long life with changing objects does not grow it.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    ids: HashMap<Arc<str>, Name, foldhash::fast::RandomState>,
    slots: Vec<Slot>,
    free: Vec<Name>,
}

impl Names {
    pub(crate) fn new() -> Self {
        let mut names = Self {
            ids: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
        };
        names.take("*");
        names
    }

    /// Number of distinct texts held.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The name of `text`, or [`Name::NONE`] where no object uses it.
    pub(crate) fn find(&self, text: &str) -> Name {
        self.ids.get(text).copied().unwrap_or(Name::NONE)
    }

    /// The text of a name.
    pub(crate) fn text(&self, name: Name) -> &str {
        self.slot(name).map_or("", |slot| &slot.text)
    }

    /// Counts one more use of `text`.
    pub(crate) fn take(&mut self, text: &str) -> Name {
        if let Some(&name) = self.ids.get(text) {
            if let Some(slot) = self.slot_mut(name) {
                slot.uses += 1;
            }
            return name;
        }
        let text: Arc<str> = Arc::from(text);
        let slot = Slot {
            text: Arc::clone(&text),
            uses: 1,
        };
        let name = if let Some(name) = self.free.pop() {
            if let Some(place) = self.slot_mut(name) {
                *place = slot;
            }
            name
        } else {
            // Past four thousand million texts every further one is NONE and matches nothing: it fails closed.
            let name = Name(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
            if name == Name::NONE {
                return name;
            }
            self.slots.push(slot);
            name
        };
        self.ids.insert(text, name);
        name
    }

    /// Counts one use less, and forgets the text with its last use.
    pub(crate) fn release(&mut self, name: Name) {
        let Some(slot) = self.slot_mut(name) else { return };
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses == 0 {
            let text = std::mem::replace(&mut slot.text, Arc::from(""));
            self.ids.remove(&text);
            self.free.push(name);
        }
    }

    fn slot(&self, name: Name) -> Option<&Slot> {
        self.slots.get(usize::try_from(name.0).ok()?)
    }

    fn slot_mut(&mut self, name: Name) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(name.0).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_lives_as_long_as_its_last_use() {
        let mut names = Names::new();
        let before = names.len();
        let a = names.take("pods");
        assert_eq!(names.take("pods"), a);
        names.release(a);
        assert_eq!(names.find("pods"), a);
        assert_eq!(names.text(a), "pods");
        names.release(a);
        assert_eq!(names.find("pods"), Name::NONE);
        assert_eq!(names.len(), before);
        assert_eq!(names.take("nodes"), a, "the place is used again");
        assert_eq!(names.find("pods"), Name::NONE);
    }

    #[test]
    fn the_wildcard_is_always_there() {
        let mut names = Names::new();
        assert_eq!(names.find("*"), Name::STAR);
        let star = names.take("*");
        names.release(star);
        assert_eq!(names.find("*"), Name::STAR);
        assert_eq!(names.text(Name::NONE), "");
    }
}
