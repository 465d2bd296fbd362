//! Drift: watches on the objects of a sync, and what keeps it from fighting over one with another writer.
//!
//! Only objects with the label of the sync are watched, and only where it has some. What a watch shows goes through a
//! bounded channel to [`super::observed::Observed`].

pub mod fights;
mod model;
mod watch;

use std::collections::{BTreeSet, HashMap};

use kube::Client;
use tokio::sync::mpsc;
use writ_controller::ServedKind;

pub use self::model::{Scope, Seen};
use self::watch::Watch;
use crate::{model::SyncId, names};

/// The capacity of the channel from the watches.
const EVENTS: usize = 1024;

/// The running watches of one sync.
pub struct Watches {
    client: Client,
    /// The value of the label of the sync.
    set: String,
    running: HashMap<Scope, Watch>,
    sender: mpsc::Sender<Seen>,
    seen: mpsc::Receiver<Seen>,
}

impl Watches {
    /// No watches yet, for the objects of this sync.
    pub fn new(client: Client, id: &SyncId) -> Self {
        let (sender, seen) = mpsc::channel(EVENTS);
        Self {
            client,
            set: names::apply_set(id),
            running: HashMap::new(),
            sender,
            seen,
        }
    }

    /// No watches yet, and what to send the events of watches to.
    #[cfg(test)]
    pub fn for_tests(client: Client, id: &SyncId) -> (Self, mpsc::Sender<Seen>) {
        let watches = Self::new(client, id);
        let sender = watches.sender.clone();
        (watches, sender)
    }

    /// Starts a watch. One that runs for the same scope is replaced.
    pub fn start(&mut self, scope: Scope, kind: &ServedKind) {
        let watch = watch::start(&self.client, kind, scope.clone(), &self.set, self.sender.clone());
        self.running.insert(scope, watch);
    }

    /// Ends every watch on another scope.
    pub fn retain(&mut self, scopes: &BTreeSet<Scope>) {
        self.running.retain(|scope, _| scopes.contains(scope));
    }

    /// The next event of any watch. Cancel safe.
    pub async fn next(&mut self) -> Seen {
        match self.seen.recv().await {
            Some(seen) => seen,
            // Never: this value holds a sender.
            None => std::future::pending().await,
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<Seen> {
        self.seen.try_recv().ok()
    }
}
