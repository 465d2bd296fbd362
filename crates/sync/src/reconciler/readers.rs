//! Who may read a repository now. Each reader takes a thread, and some servers never answer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::{SyncId, SyncKind};

/// How many repositories of this machine are read at once.
const LOCAL: usize = 8;
/// How many others, of RootSyncs: most of these threads wait.
const REMOTE_ROOT: usize = 64;
/// The same, of RepoSyncs: tenants cannot take what RootSyncs need.
const REMOTE_REPO: usize = 32;
/// How many of these one namespace can have: no tenant can take what the others need.
const REMOTE_NAMESPACE: usize = 4;

/// The readers of a process.
pub struct Readers {
    local: Arc<Semaphore>,
    roots: Arc<Semaphore>,
    repos: Arc<Semaphore>,
    /// Those that somebody uses.
    namespaces: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            local: Arc::new(Semaphore::new(LOCAL)),
            roots: Arc::new(Semaphore::new(REMOTE_ROOT)),
            repos: Arc::new(Semaphore::new(REMOTE_REPO)),
            namespaces: Mutex::default(),
        }
    }
}

/// A turn to read, until it is dropped.
pub struct Turn {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Readers {
    /// Waits for a turn.
    pub async fn turn(&self, id: &SyncId, local: bool) -> Turn {
        let all = match (local, id.kind) {
            (true, _) => vec![self.local.clone()],
            (false, SyncKind::Root) => vec![self.roots.clone()],
            // The narrow gate first: who waits there takes no place in the wide one.
            (false, SyncKind::Repo) => vec![self.namespace(&id.namespace), self.repos.clone()],
        };
        let mut permits = Vec::new();
        for one in all {
            // It is never closed.
            permits.extend(one.acquire_owned().await.ok());
        }
        Turn { _permits: permits }
    }

    fn namespace(&self, name: &Arc<str>) -> Arc<Semaphore> {
        let mut all = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = all.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let made = Arc::new(Semaphore::new(REMOTE_NAMESPACE));
        all.insert(name.clone(), Arc::downgrade(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_namespace_cannot_take_every_reader() {
        let readers = Readers::default();
        let repo = |namespace: &str, n: usize| SyncId::new(SyncKind::Repo, namespace, &n.to_string());
        let mut held = Vec::new();
        for n in 0..REMOTE_NAMESPACE {
            held.push(readers.turn(&repo("greedy", n), false).await);
        }
        assert!(readers.turn(&repo("greedy", 99), false).now_or_never().is_none());
        assert!(readers.turn(&repo("other", 0), false).now_or_never().is_some());
        // Nor can all of them together take those of RootSyncs.
        for n in 0..REMOTE_REPO {
            held.extend(readers.turn(&repo(&format!("n{n}"), 0), false).now_or_never());
        }
        assert!(readers.turn(&repo("late", 0), false).now_or_never().is_none());
        let root = SyncId::new(SyncKind::Root, "config-management-system", "a");
        assert!(readers.turn(&root, false).now_or_never().is_some());
        // A turn that is over is somebody else's.
        held.clear();
        assert!(readers.turn(&repo("greedy", 99), false).now_or_never().is_some());
    }
}
