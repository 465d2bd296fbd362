//! Statuses that this agent wrote, or tried to write, and that its watch has not shown yet.
//!
//! A pass reports only what is new; the rest of a status is taken from the last one. The cache may lack that one, because
//! the work was changed in the same moment or the hub was away. Continuing from the cache then would lose what
//! was read since, until the object changes again.

use kube::ResourceExt;
use writ_api::work::{ManifestWork, ManifestWorkStatus};
use writ_controller::compressed::{compress, decompress};

use crate::work::drift::resource_version;

/// The statuses of one work that are in flight. This agent is the only writer of them.
#[derive(Debug, Default, PartialEq)]
pub struct InFlightStatus {
    uid: Option<String>,
    /// What the hub has, from this version of the work on.
    written: Option<(u64, Box<[u8]>)>,
    /// What the hub did not take.
    attempted: Option<Box<[u8]>>,
}

/// The status of a work, as far as this agent knows it.
pub struct LatestStatus {
    /// What the hub has.
    pub written: ManifestWorkStatus,
    /// What the next status continues from.
    pub last: ManifestWorkStatus,
}

impl InFlightStatus {
    /// The work has this status from this version on.
    pub fn mark_written(&mut self, work: &ManifestWork, status: &ManifestWorkStatus, version: u64) {
        *self = Self {
            uid: work.uid(),
            // A status that cannot be compressed could not be sent either.
            written: compress(status).ok().map(|compressed| (version, compressed)),
            attempted: None,
        };
    }

    /// Writing this status failed.
    pub fn mark_attempted(&mut self, work: &ManifestWork, status: &ManifestWorkStatus) {
        if self.uid != work.uid() {
            *self = Self {
                uid: work.uid(),
                ..Self::default()
            };
        }
        self.attempted = compress(status).ok();
    }

    /// The status that could not be written is no longer wanted.
    pub fn drop_attempt(&mut self) {
        self.attempted = None;
    }

    /// The latest status of a work, given the work as the cache has it.
    pub fn latest(&mut self, work: &ManifestWork) -> LatestStatus {
        let mut written = work.status.clone().unwrap_or_default();
        if self.uid != work.uid() {
            *self = Self::default();
        }
        let shown = resource_version(work.resource_version().as_deref());
        self.written = self.written.take().filter(|(version, _)| shown < *version);
        if let Some((_, compressed)) = &self.written {
            written = decompress(compressed).unwrap_or(written);
        }
        let attempted = self
            .attempted
            .as_ref()
            .and_then(|compressed| decompress(compressed).ok());
        if self.written.is_none() && self.attempted.is_none() {
            *self = Self::default();
        }
        let last = attempted.unwrap_or_else(|| written.clone());
        LatestStatus { written, last }
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

    fn reasons(in_flight: &mut InFlightStatus, work: &ManifestWork) -> [String; 2] {
        let known = in_flight.latest(work);
        [known.written, known.last].map(|status| status.conditions[0].reason.clone())
    }

    #[test]
    fn status_counts_until_the_watch_shows_it() {
        let in_flight = &mut InFlightStatus::default();
        assert_eq!(reasons(in_flight, &work("u", "5", "Old")), ["Old", "Old"]);
        in_flight.mark_written(&work("u", "5", "Old"), &status("New"), 8);
        // The work was changed before our status was written.
        assert_eq!(reasons(in_flight, &work("u", "7", "Old")), ["New", "New"]);
        assert_eq!(reasons(in_flight, &work("u", "8", "New")), ["New", "New"]);
        assert_eq!(*in_flight, InFlightStatus::default(), "it is forgotten");
        // The hub is away: it has the old one, and the next continues from the new one, whatever changes there.
        in_flight.mark_attempted(&work("u", "8", "Old"), &status("New"));
        assert_eq!(reasons(in_flight, &work("u", "8", "Old")), ["Old", "New"]);
        assert_eq!(reasons(in_flight, &work("u", "9", "Old")), ["Old", "New"]);
        // It has a status that was not shown yet, and did not take the next one.
        in_flight.mark_written(&work("u", "9", "Old"), &status("New"), 11);
        in_flight.mark_attempted(&work("u", "10", "Old"), &status("Newer"));
        assert_eq!(reasons(in_flight, &work("u", "10", "Old")), ["New", "Newer"]);
        assert_eq!(reasons(in_flight, &work("u", "11", "New")), ["New", "Newer"]);
        in_flight.drop_attempt();
        assert_eq!(
            reasons(in_flight, &work("u", "10", "Old")),
            ["Old", "Old"],
            "what was shown counts"
        );
        // Another work of the same name.
        in_flight.mark_attempted(&work("u", "8", "Old"), &status("New"));
        assert_eq!(reasons(in_flight, &work("other", "10", "Old")), ["Old", "Old"]);
    }
}
