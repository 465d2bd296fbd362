//! How much memory the files of repositories may take.
//!
//! All syncs share one process, so a repository full of large files, or many such at once, must not stop the other syncs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::SyncKind;

/// The bytes that one permit stands for. A semaphore has too few permits for one per byte.
const UNIT: u64 = 1024;
/// The most bytes read of one commit of a RootSync, and of all repositories at once.
const MAX_ROOT: u64 = 64 * 1024 * 1024;
/// The most bytes read of one commit of a RepoSync. There are many tenants.
const MAX_REPO: u64 = 8 * 1024 * 1024;

/// The memory that all reconcilers of a process share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemoryPool(Arc<Semaphore>);

impl Default for MemoryPool {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(
            usize::try_from(MAX_ROOT / UNIT).unwrap_or(Semaphore::MAX_PERMITS),
        )))
    }
}

/// The share of one sync.
#[derive(Clone, Debug)]
pub struct Budget {
    pool: MemoryPool,
    limit: u64,
}

impl Budget {
    /// The share of a sync of that kind.
    pub fn new(pool: MemoryPool, kind: SyncKind) -> Self {
        let limit = match kind {
            SyncKind::Root => MAX_ROOT,
            SyncKind::Repo => MAX_REPO,
        };
        Self { pool, limit }
    }

    /// The most bytes of one commit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Waits until that many bytes are available. Blocks: call it off the runtime.
    pub fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, String> {
        let units = u32::try_from(bytes.min(self.limit).div_ceil(UNIT)).unwrap_or(u32::MAX);
        futures::executor::block_on(self.pool.0.clone().acquire_many_owned(units))
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_until_memory_is_available() {
        let pool = MemoryPool::default();
        let small = Budget::new(pool.clone(), SyncKind::Repo);
        let large = Budget::new(pool.clone(), SyncKind::Root);
        assert!(small.limit() < large.limit());
        let held = small.take(small.limit()).unwrap();
        let waits = std::thread::spawn(move || large.take(MAX_ROOT).map(drop));
        while !waits.is_finished() && pool.0.available_permits() > 0 {
            std::thread::yield_now();
        }
        assert!(!waits.is_finished());
        drop(held);
        waits.join().unwrap().unwrap();
    }
}
