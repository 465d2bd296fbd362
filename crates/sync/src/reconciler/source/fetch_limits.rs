//! Who may read a repository now. Each reader takes a thread, and some servers never answer.

use std::{
    collections::HashMap,
    hash::Hash,
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
/// How many of either one server can have: one that never answers delays those who read from it, and nobody else.
const REMOTE_HOST: usize = 16;
/// How many of these one namespace can have: no tenant can take what the others need.
const REMOTE_NAMESPACE: usize = 4;

/// The readers of a process.
pub struct Readers {
    local: Arc<Semaphore>,
    roots: Arc<Semaphore>,
    repos: Arc<Semaphore>,
    namespaces: Used<Arc<str>>,
    hosts: Used<(SyncKind, String)>,
}

/// Those that somebody uses.
type Used<K> = Mutex<HashMap<K, Weak<Semaphore>>>;

impl Default for Readers {
    fn default() -> Self {
        Self {
            local: Arc::new(Semaphore::new(LOCAL)),
            roots: Arc::new(Semaphore::new(REMOTE_ROOT)),
            repos: Arc::new(Semaphore::new(REMOTE_REPO)),
            namespaces: Mutex::default(),
            hosts: Mutex::default(),
        }
    }
}

/// A turn to read, until it is dropped.
pub struct Turn {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Readers {
    /// Waits for a turn to read from that server; from this machine if there is none.
    pub async fn turn(&self, id: &SyncId, host: Option<String>) -> Turn {
        let host = host.map(|host| narrow(&self.hosts, (id.kind, host), REMOTE_HOST));
        // The narrow gates first: who waits there takes no place in the wide one.
        let all = match (host, id.kind) {
            (None, _) => vec![self.local.clone()],
            (Some(host), SyncKind::Root) => vec![host, self.roots.clone()],
            (Some(host), SyncKind::Repo) => {
                let namespace = narrow(&self.namespaces, id.namespace.clone(), REMOTE_NAMESPACE);
                vec![namespace, host, self.repos.clone()]
            }
        };
        let mut permits = Vec::new();
        for one in all {
            // It is never closed.
            permits.extend(one.acquire_owned().await.ok());
        }
        Turn { _permits: permits }
    }
}

/// The gate of one of many.
fn narrow<K: Eq + Hash>(used: &Used<K>, one: K, places: usize) -> Arc<Semaphore> {
    let mut all = used.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, known| known.strong_count() > 0);
    if let Some(known) = all.get(&one).and_then(Weak::upgrade) {
        return known;
    }
    let made = Arc::new(Semaphore::new(places));
    all.insert(one, Arc::downgrade(&made));
    made
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_namespace_cannot_take_every_reader() {
        let readers = Readers::default();
        let repo = |namespace: &str, n: usize| SyncId::new(SyncKind::Repo, namespace, &n.to_string());
        let mut hosts = 0..;
        let mut host = || hosts.next().map(|n| format!("host{n}"));
        let mut held = Vec::new();
        for n in 0..REMOTE_NAMESPACE {
            held.push(readers.turn(&repo("greedy", n), host()).await);
        }
        assert!(readers.turn(&repo("greedy", 99), host()).now_or_never().is_none());
        assert!(readers.turn(&repo("other", 0), host()).now_or_never().is_some());
        // Nor can all of them together take those of RootSyncs.
        for n in 0..REMOTE_REPO {
            held.extend(readers.turn(&repo(&format!("n{n}"), 0), host()).now_or_never());
        }
        assert!(readers.turn(&repo("late", 0), host()).now_or_never().is_none());
        let root = SyncId::new(SyncKind::Root, "config-management-system", "a");
        assert!(readers.turn(&root, host()).now_or_never().is_some());
        // A turn that is over is somebody else's.
        held.clear();
        assert!(readers.turn(&repo("greedy", 99), host()).now_or_never().is_some());
    }
    #[tokio::test]
    async fn one_server_cannot_take_every_reader() {
        let readers = Readers::default();
        let root = |n: usize| SyncId::new(SyncKind::Root, "config-management-system", &n.to_string());
        let silent = || Some("silent.example.com".to_owned());
        let mut held = Vec::new();
        for n in 0..REMOTE_HOST {
            held.push(readers.turn(&root(n), silent()).await);
        }
        assert!(readers.turn(&root(99), silent()).now_or_never().is_none());
        let other = Some("other.example.com".to_owned());
        assert!(readers.turn(&root(99), other).now_or_never().is_some());
        // Nor what RepoSyncs, or folders, need.
        let repo = SyncId::new(SyncKind::Repo, "team", "a");
        assert!(readers.turn(&repo, silent()).now_or_never().is_some());
        assert!(readers.turn(&root(99), None).now_or_never().is_some());
        held.clear();
        assert!(readers.turn(&root(99), silent()).now_or_never().is_some());
    }
}
