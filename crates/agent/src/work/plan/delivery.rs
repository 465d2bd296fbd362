//! In which order a revision is delivered: what is recorded, written, pruned and revoked, and when it is tried again.
//!
//! Grant first, revoke last. What a work dropped is deleted even if the new revision is refused.

use std::time::Duration;

use writ_api::work::AppliedResource;
use writ_controller::queue::Next;

use super::{
    rbac::{GRANT_GROUP, RBAC_GROUP},
    records::{dropped, new_records},
};
use crate::work::model::{PlannedManifest, Verdict};

/// The steps of one delivery.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// First: recorded before anything is written.
    pub record_first: Vec<AppliedResource>,
    /// Second: written wave after wave, the manifests of one wave side by side.
    pub waves: Vec<Vec<&'a PlannedManifest>>,
    /// Beside the writes: deleted at once.
    pub prunes: Vec<AppliedResource>,
    /// Third: roles and bindings, deleted once the writes are through, or have taken too long.
    pub revocations: Vec<AppliedResource>,
    /// Last: NamespaceGrants, deleted once everything else is through and recorded: the objects that a grant made stay where the
    /// record says that this work delivers them now.
    pub grant_revocations: Vec<AppliedResource>,
}

impl<'a> Delivery<'a> {
    /// The steps from what is recorded to what the manifests ask for. Nothing is written of a complete work.
    pub fn plan(
        manifests: &'a [PlannedManifest],
        verdict: &Verdict,
        records: &[AppliedResource],
        is_complete: bool,
    ) -> Self {
        let (grants, others): (Vec<_>, Vec<_>) = dropped(records, manifests)
            .into_iter()
            .partition(|record| record.group == GRANT_GROUP);
        let (rbac, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|record| record.group == RBAC_GROUP);
        let mut order: Vec<&PlannedManifest> = manifests.iter().collect();
        order.sort_by_key(|manifest| manifest.rank);
        Self {
            record_first: new_records(manifests, verdict, records, is_complete),
            waves: order
                .chunk_by(|a, b| a.rank == b.rank)
                .map(<[_]>::to_vec)
                .collect(),
            prunes: others,
            revocations: rbac,
            grant_revocations: grants,
        }
    }
}

/// What is left to do after a delivery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unfinished {
    /// Dropped objects still exist.
    pub still_present: bool,
    /// A refusal may change with time alone, after this pause.
    pub recheck_after: Option<Duration>,
    /// A manifest could not be written, and another attempt can help.
    pub failed: bool,
    /// The API server's authorizer and the watched RBAC objects disagree.
    pub unsettled: bool,
}

impl Unfinished {
    /// When the work is delivered again.
    pub fn next(self) -> Next {
        match self.recheck_after {
            _ if self.still_present => Next::Retry,
            Some(pause) => Next::After(pause),
            None if self.failed || self.unsettled => Next::Retry,
            None => Next::Wait,
        }
    }
}
