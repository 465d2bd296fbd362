//! How much of this machine's memory the files of repositories may take.
//!
//! All syncs share one process: a repository full of large files, or many of them at once, must stop nobody else's.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::SyncKind;

/// What is counted in: a permit for every byte would be more than there are.
const UNIT: u64 = 1024;
/// The most that is read of one commit of a RootSync, and of all repositories at once.
const MAX_ROOT: u64 = 64 * 1024 * 1024;
/// The most that is read of one commit of a RepoSync: tenants are many.
const MAX_REPO: u64 = 8 * 1024 * 1024;

/// The room that all reconcilers of a process share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(
            usize::try_from(MAX_ROOT / UNIT).unwrap_or(Semaphore::MAX_PERMITS),
        )))
    }
}

/// What one sync may take of it.
#[derive(Clone, Debug)]
pub struct Budget {
    room: Room,
    limit: u64,
}

impl Budget {
    /// For a sync of that kind.
    pub fn new(room: Room, kind: SyncKind) -> Self {
        let limit = match kind {
            SyncKind::Root => MAX_ROOT,
            SyncKind::Repo => MAX_REPO,
        };
        Self { room, limit }
    }

    /// How many bytes a commit may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Waits until there is room for that many bytes. Blocks: call it off the runtime.
    pub fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, String> {
        let units = u32::try_from(bytes.min(self.limit).div_ceil(UNIT)).unwrap_or(u32::MAX);
        futures::executor::block_on(self.room.0.clone().acquire_many_owned(units))
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_when_there_is_room_for_them() {
        let room = Room::default();
        let small = Budget::new(room.clone(), SyncKind::Repo);
        let large = Budget::new(room.clone(), SyncKind::Root);
        assert!(small.limit() < large.limit());
        let held = small.take(small.limit()).unwrap();
        let waits = std::thread::spawn(move || large.take(MAX_ROOT).map(drop));
        while !waits.is_finished() && room.0.available_permits() > 0 {
            std::thread::yield_now();
        }
        assert!(!waits.is_finished());
        drop(held);
        waits.join().unwrap().unwrap();
    }
}
