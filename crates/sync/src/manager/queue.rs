//! Which syncs wait for a pass: in the order they came, each at most once, so it is as long as there are syncs.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::model::SyncId;

/// The syncs that wait. Cheap to clone.
#[derive(Clone, Default)]
pub struct Queue {
    pending: Arc<Mutex<VecDeque<SyncId>>>,
    added: Arc<Notify>,
}

impl Queue {
    /// Asks for a pass.
    pub fn add(&self, id: SyncId) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if !pending.contains(&id) {
            pending.push_back(id);
            self.added.notify_one();
        }
    }

    /// Takes the first one that is not being worked on.
    pub fn take(&self, busy: &BTreeSet<SyncId>) -> Option<SyncId> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let first = pending.iter().position(|id| !busy.contains(id))?;
        pending.remove(first)
    }

    /// Waits until something was added.
    pub async fn added(&self) {
        self.added.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SyncKind;

    #[test]
    fn first_come_first_served_and_never_two_at_once() {
        let id = |name: &str| SyncId::new(SyncKind::Root, "ns", name);
        let queue = Queue::default();
        for name in ["b", "a", "b"] {
            queue.add(id(name));
        }
        assert_eq!(queue.take(&[id("b")].into()), Some(id("a")));
        assert_eq!(queue.take(&BTreeSet::new()), Some(id("b")));
        assert_eq!(queue.take(&BTreeSet::new()), None);
    }
}
