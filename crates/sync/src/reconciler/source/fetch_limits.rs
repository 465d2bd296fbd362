//! How many repositories are read at once. Each read takes a thread, and some servers never answer.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::{SyncId, SyncKind};

/// Concurrent reads of repositories on this machine.
const LOCAL: usize = 8;
/// Concurrent reads of remote repositories by RootSyncs. Most of these threads wait for the network.
const REMOTE_ROOT: usize = 64;
/// Concurrent reads of remote repositories by RepoSyncs, apart from those of RootSyncs, which tenants must not block.
const REMOTE_REPO: usize = 32;
/// Concurrent reads from one server, for each kind of sync. A server that never answers delays only its own readers.
const REMOTE_HOST: usize = 16;
/// Concurrent reads for the RepoSyncs of one namespace, so that no tenant blocks the others.
const REMOTE_NAMESPACE: usize = 4;

/// The limits of a process.
pub struct FetchLimits {
    local: Arc<Semaphore>,
    roots: Arc<Semaphore>,
    repos: Arc<Semaphore>,
    namespaces: Semaphores<Arc<str>>,
    hosts: Semaphores<(SyncKind, String)>,
}

/// The semaphores in use, by what they limit.
type Semaphores<K> = Mutex<HashMap<K, Weak<Semaphore>>>;

impl Default for FetchLimits {
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

/// Permission to read a repository, until it is dropped.
pub struct FetchPermit {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl FetchLimits {
    /// Waits until the sync may read from a server, or from this machine if there is no host.
    pub async fn acquire(&self, id: &SyncId, host: Option<String>) -> FetchPermit {
        let host = host.map(|host| shared(&self.hosts, (id.kind, host), REMOTE_HOST));
        // The narrower limits come first, so that waiting for one occupies no permit of a wider one.
        let all = match (host, id.kind) {
            (None, _) => vec![self.local.clone()],
            (Some(host), SyncKind::Root) => vec![host, self.roots.clone()],
            (Some(host), SyncKind::Repo) => {
                let namespace = shared(&self.namespaces, id.namespace.clone(), REMOTE_NAMESPACE);
                vec![namespace, host, self.repos.clone()]
            }
        };
        let mut permits = Vec::new();
        for one in all {
            // No semaphore is ever closed.
            permits.extend(one.acquire_owned().await.ok());
        }
        FetchPermit { _permits: permits }
    }
}

/// The semaphore of a key. One that is not in use is dropped.
fn shared<K: Eq + Hash>(used: &Semaphores<K>, key: K, permits: usize) -> Arc<Semaphore> {
    let mut all = used.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, known| known.strong_count() > 0);
    if let Some(known) = all.get(&key).and_then(Weak::upgrade) {
        return known;
    }
    let made = Arc::new(Semaphore::new(permits));
    all.insert(key, Arc::downgrade(&made));
    made
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn reads_of_one_namespace_do_not_block_other_namespaces() {
        let limits = FetchLimits::default();
        let repo = |namespace: &str, n: usize| SyncId::new(SyncKind::Repo, namespace, &n.to_string());
        let mut hosts = 0..;
        let mut host = || hosts.next().map(|n| format!("host{n}"));
        let mut held = Vec::new();
        for n in 0..REMOTE_NAMESPACE {
            held.push(limits.acquire(&repo("greedy", n), host()).await);
        }
        assert!(
            limits
                .acquire(&repo("greedy", 99), host())
                .now_or_never()
                .is_none()
        );
        assert!(limits.acquire(&repo("other", 0), host()).now_or_never().is_some());
        // All namespaces together do not block RootSyncs.
        for n in 0..REMOTE_REPO {
            held.extend(limits.acquire(&repo(&format!("n{n}"), 0), host()).now_or_never());
        }
        assert!(limits.acquire(&repo("late", 0), host()).now_or_never().is_none());
        let root = SyncId::new(SyncKind::Root, "config-management-system", "a");
        assert!(limits.acquire(&root, host()).now_or_never().is_some());
        // A dropped permit is available again.
        held.clear();
        assert!(
            limits
                .acquire(&repo("greedy", 99), host())
                .now_or_never()
                .is_some()
        );
    }

    #[tokio::test]
    async fn reads_from_one_server_do_not_block_other_servers() {
        let limits = FetchLimits::default();
        let root = |n: usize| SyncId::new(SyncKind::Root, "config-management-system", &n.to_string());
        let silent = || Some("silent.example.com".to_owned());
        let mut held = Vec::new();
        for n in 0..REMOTE_HOST {
            held.push(limits.acquire(&root(n), silent()).await);
        }
        assert!(limits.acquire(&root(99), silent()).now_or_never().is_none());
        let other = Some("other.example.com".to_owned());
        assert!(limits.acquire(&root(99), other).now_or_never().is_some());
        // Nor what RepoSyncs, or folders, need.
        let repo = SyncId::new(SyncKind::Repo, "team", "a");
        assert!(limits.acquire(&repo, silent()).now_or_never().is_some());
        assert!(limits.acquire(&root(99), None).now_or_never().is_some());
        held.clear();
        assert!(limits.acquire(&root(99), silent()).now_or_never().is_some());
    }
}
