//! The types of replica sets: what is observed, what is planned, how far each cluster is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use writ_api::work::{ManifestWork, ManifestWorkReplicaSet, ManifestWorkReplicaSetStatus};

/// What the plan of a set is made from.
pub struct Observed<'a> {
    /// The replica set.
    pub set: &'a ManifestWorkReplicaSet,
    /// The decision groups of each placement, by name; placements without decisions are left out.
    pub placements: &'a BTreeMap<String, Vec<Group>>,
    /// The works that were made for the set; see [`super::ownership`].
    pub works: &'a [ManifestWork],
    /// The clusters that could not be written.
    pub unwritten: &'a BTreeMap<String, Unwritten>,
    /// What this reconcile has done already.
    pub attempts: Attempts<'a>,
    /// The time of observation.
    pub now: Timestamp,
}

/// What a reconcile has done before it plans again.
#[derive(Clone, Copy)]
pub struct Attempts<'a> {
    /// The clusters whose work was written.
    pub written: &'a BTreeSet<String>,
    /// Why works could not be deleted.
    pub undeleted: &'a [String],
}

impl Default for Attempts<'_> {
    fn default() -> Self {
        const NONE: &BTreeSet<String> = &BTreeSet::new();
        Self {
            written: NONE,
            undeleted: &[],
        }
    }
}

/// The works to write and to delete, and the status.
#[derive(Debug, Default)]
pub struct Plan {
    /// Works to create or to change.
    pub apply: Vec<ManifestWork>,
    /// Works to delete.
    pub delete: Vec<ManifestWork>,
    /// The status.
    pub status: ManifestWorkReplicaSetStatus,
    /// The clusters that should be written and cannot.
    pub failing: BTreeSet<String>,
    /// When time alone changes the plan.
    pub look_again: Option<Duration>,
}

/// The clusters of one decision group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Its index.
    pub index: i32,
    /// Its clusters, sorted.
    pub clusters: Vec<String>,
}

/// How far a cluster is with the current template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Its work does not have the template.
    Pending,
    /// The template is being applied, for this time.
    Progressing(Duration),
    /// The template was applied successfully, this time ago.
    Succeeded(Duration),
    /// Applying the template failed, or its work could not be written.
    Failed,
    /// Its work could not be written, and is due for another attempt; a failure until that succeeds.
    Retry,
}

/// A cluster that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The request that failed, with the answer of the API server.
    pub why: String,
    /// Whether another attempt is due.
    pub due: bool,
}
