//! The statuses that this agent wrote, or tried to write, and that its watch has not shown yet.
//!
//! A pass tells only what is new: the rest of a status comes from the one before. While the cache does not have that one,
//! because somebody changed the work in the same moment or the hub was away, it comes from here. Taken from the cache it
//! would be one that lacks what was read since, and nothing would bring it back before the object changes again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use writ_api::work::{ManifestWork, ManifestWorkStatus};
use writ_controller::packed::{pack, unpack};

use super::cache::version;

#[derive(Default)]
struct Entry {
    uid: Option<String>,
    /// What the hub has, from this version of the work on.
    written: Option<(u64, Box<[u8]>)>,
    /// What the hub did not take.
    tried: Option<Box<[u8]>>,
}

/// The statuses by the names of their works. This agent is the only one who writes them.
#[derive(Default)]
pub struct Unseen {
    entries: Mutex<HashMap<String, Entry>>,
}

/// The status of a work, as far as it is known here.
pub struct Known {
    /// What the hub has.
    pub written: ManifestWorkStatus,
    /// What the next one goes on from.
    pub last: ManifestWorkStatus,
}

impl Unseen {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work has this status from this version on.
    pub fn written(&self, work: &ManifestWork, status: &ManifestWorkStatus, version: u64) {
        // One that cannot be packed could not be sent either.
        let written = pack(status).ok().map(|packed| (version, packed));
        let entry = Entry {
            uid: work.uid(),
            written,
            tried: None,
        };
        self.lock().insert(work.name_any(), entry);
    }

    /// The work was to get this status.
    pub fn tried(&self, work: &ManifestWork, status: &ManifestWorkStatus) {
        let mut entries = self.lock();
        let entry = entries.entry(work.name_any()).or_default();
        if entry.uid != work.uid() {
            *entry = Entry {
                uid: work.uid(),
                ..Entry::default()
            };
        }
        entry.tried = pack(status).ok();
    }

    /// What was tried is not wanted any more.
    pub fn settled(&self, work: &str) {
        if let Some(entry) = self.lock().get_mut(work) {
            entry.tried = None;
        }
    }

    /// The cache has it.
    pub fn forget(&self, work: &str) {
        self.lock().remove(work);
    }

    /// The status of a work that the cache has.
    pub fn status(&self, work: &ManifestWork) -> Known {
        let mut written = work.status.clone().unwrap_or_default();
        let mut entries = self.lock();
        let name = work.name_any();
        let Some(entry) = entries.get_mut(&name).filter(|entry| entry.uid == work.uid()) else {
            entries.remove(&name);
            let last = written.clone();
            return Known { written, last };
        };
        let shown = version(work.resource_version().as_deref());
        entry.written = entry.written.take().filter(|(version, _)| shown < *version);
        if let Some((_, packed)) = &entry.written {
            written = unpack(packed).unwrap_or(written);
        }
        let tried = entry.tried.as_ref().and_then(|packed| unpack(packed).ok());
        if entry.written.is_none() && entry.tried.is_none() {
            entries.remove(&name);
        }
        let last = tried.unwrap_or_else(|| written.clone());
        Known { written, last }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(uid: &str, version: &str, reason: &str) -> ManifestWork {
        serde_json::from_value(json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": "w", "uid": uid, "resourceVersion": version}, "spec": {}, "status": status(reason),
        }))
        .unwrap()
    }

    fn status(reason: &str) -> ManifestWorkStatus {
        serde_json::from_value(
            json!({"conditions": [{"type": "Applied", "status": "True", "reason": reason,
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        )
        .unwrap()
    }

    #[test]
    fn a_status_counts_until_the_watch_shows_it() {
        let unseen = Unseen::default();
        let reasons = |work: &ManifestWork| {
            let known = unseen.status(work);
            [known.written, known.last].map(|status| status.conditions[0].reason.clone())
        };
        assert_eq!(reasons(&work("u", "5", "Old")), ["Old", "Old"]);
        unseen.written(&work("u", "5", "Old"), &status("New"), 8);
        // Somebody changed the work before our status was written.
        assert_eq!(reasons(&work("u", "7", "Old")), ["New", "New"]);
        assert_eq!(reasons(&work("u", "8", "New")), ["New", "New"]);
        assert_eq!(reasons(&work("u", "7", "Old")), ["Old", "Old"], "it is forgotten");
        // The hub is away: it has the old one, and the next goes on from the new one, whatever changes there.
        unseen.tried(&work("u", "8", "Old"), &status("New"));
        assert_eq!(reasons(&work("u", "8", "Old")), ["Old", "New"]);
        assert_eq!(reasons(&work("u", "9", "Old")), ["Old", "New"]);
        // It has a status that was not seen yet, and did not take the next one.
        unseen.written(&work("u", "9", "Old"), &status("New"), 11);
        unseen.tried(&work("u", "10", "Old"), &status("Newer"));
        assert_eq!(reasons(&work("u", "10", "Old")), ["New", "Newer"]);
        assert_eq!(reasons(&work("u", "11", "New")), ["New", "Newer"]);
        unseen.settled("w");
        assert_eq!(
            reasons(&work("u", "10", "Old")),
            ["Old", "Old"],
            "what was seen counts"
        );
        unseen.tried(&work("u", "8", "Old"), &status("New"));
        // Another work of that name has nothing to do with it.
        assert_eq!(reasons(&work("other", "10", "Old")), ["Old", "Old"]);
        unseen.tried(&work("u", "8", "Old"), &status("New"));
        unseen.forget("w");
        assert_eq!(reasons(&work("u", "8", "Old")), ["Old", "Old"]);
    }
}
