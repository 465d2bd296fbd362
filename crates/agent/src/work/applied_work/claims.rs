//! Pure: what a work that is being deleted says of its recorded objects.

use std::collections::{BTreeSet, HashMap};

use writ_api::work::{AppliedResource, ManifestWork, UpdateStrategyType};
use writ_controller::condition;

use crate::work::{
    apply::delete::Claim,
    model::{ObjectIdentity, PlannedManifest, TargetObject},
    plan::{
        config::{is_owned, merge_configs},
        rbac::refuses_foreign,
    },
    status::APPLIED,
};

/// The last claims of a work on its recorded objects. Dropped objects are deleted, whatever it says of those that it delivers.
#[derive(Default)]
pub struct FinalClaims {
    /// The objects that it orphans.
    pub orphaned: BTreeSet<AppliedResource>,
    /// The objects whose manifests refuse foreign ones.
    refuse_foreign: BTreeSet<AppliedResource>,
    /// Whether its last revision was allowed.
    is_settled: bool,
}

impl FinalClaims {
    /// The claims of a work with these manifests.
    pub fn new(work: &ManifestWork, manifests: &[PlannedManifest], records: &[AppliedResource]) -> Self {
        let targets: HashMap<_, &TargetObject> = manifests
            .iter()
            .filter_map(|manifest| manifest.target.as_ref().ok())
            .map(|target| (target.identity(), target))
            .collect();
        let mut claims = Self {
            is_settled: is_settled(work),
            ..Self::default()
        };
        for record in records {
            let Some(target) = targets.get(&ObjectIdentity::of_record(record)) else {
                continue;
            };
            if would_be_orphaned(work, record) {
                claims.orphaned.insert(record.clone());
            } else if refuses_foreign(target) {
                claims.refuse_foreign.insert(record.clone());
            }
        }
        claims
    }

    /// Why a recorded object belongs to the work.
    pub fn claim(&self, work: &ManifestWork, record: &AppliedResource) -> Claim<'static> {
        if self.orphaned.contains(record) {
            Claim::Orphaned
        } else if !self.is_settled {
            // The executor was never asked for the right to delete the object.
            Claim::Reference
        } else if self.refuse_foreign.contains(record) {
            Claim::RefusesForeign
        } else if would_be_orphaned(work, record) {
            // It was dropped, and it is not known whether it was to be orphaned when it was delivered.
            Claim::Reference
        } else {
            Claim::Written
        }
    }
}

/// Whether the last revision of a work that is being deleted was written: a refused revision does not tell what belongs to the
/// work. The deletion itself raises the generation.
fn is_settled(work: &ManifestWork) -> bool {
    let conditions = work.status.as_ref().map(|status| status.conditions.as_slice());
    let applied = condition::find(conditions.unwrap_or_default(), APPLIED);
    let was_written = applied.is_some_and(|applied| {
        let (seen, now) = (applied.observed_generation, work.metadata.generation);
        applied.status == "True" && seen.zip(now).is_some_and(|(seen, now)| seen + 1 >= now)
    });
    work.spec.executor.is_none() || was_written
}

/// Whether a work that delivers this object only reads it, or orphans it.
fn would_be_orphaned(work: &ManifestWork, record: &AppliedResource) -> bool {
    let identity = ObjectIdentity::of_record(record);
    let strategy = merge_configs(&work.spec.manifest_configs, identity)
        .strategy
        .type_;
    strategy == UpdateStrategyType::ReadOnly || !is_owned(work.spec.delete_option.as_ref(), identity)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn revision_that_was_not_written_claims_no_objects() {
        let executor =
            json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "a"}}});
        for (what, executor, status, seen, settled) in [
            ("applied, then deleted", Some(&executor), "True", 2, true),
            ("changed and deleted, unseen", Some(&executor), "True", 1, false),
            ("refused", Some(&executor), "False", 2, false),
            ("failed without an executor", None, "False", 2, true),
        ] {
            let work: ManifestWork = serde_json::from_value(json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": "w", "generation": 3},
                "spec": {"executor": executor, "workload": {"manifests": []}},
                "status": {"conditions": [{"type": "Applied", "status": status, "observedGeneration": seen,
                    "reason": "R", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
            }))
            .unwrap();
            assert_eq!(is_settled(&work), settled, "{what}");
        }
    }
}
