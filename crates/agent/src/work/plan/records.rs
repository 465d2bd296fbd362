//! What the AppliedManifestWork records: every object that a work may have written.

use std::collections::{BTreeSet, HashSet};

use writ_api::work::{AppliedManifestWork, AppliedManifestWorkStatus, AppliedResource};

use crate::work::model::{
    ManifestOutcome, ObjectIdentity, PlannedManifest, RecordedUids, TargetObject, Verdict,
};

/// The objects that a work has written, as recorded.
pub fn recorded(applied: &AppliedManifestWork) -> &[AppliedResource] {
    let status = applied.status.as_ref();
    status.map_or(&[], |status| &status.applied_resources)
}

/// The uids of recorded objects.
pub fn uids_of(records: &[AppliedResource]) -> RecordedUids<'_> {
    let uids = records
        .iter()
        .map(|record| (ObjectIdentity::of_record(record), record.uid.as_str()));
    uids.collect()
}

/// The recorded objects that no manifest names any more; versions do not matter.
///
/// A manifest that cannot be mapped to a resource still names its object: no object of its group and name is dropped.
pub fn dropped(records: &[AppliedResource], manifests: &[PlannedManifest]) -> Vec<AppliedResource> {
    let mut named = BTreeSet::new();
    let mut unmapped = BTreeSet::new();
    for manifest in manifests {
        match &manifest.target {
            Ok(target) => {
                named.insert(target.identity());
            }
            Err(_) => {
                unmapped.insert((manifest.meta.group.as_str(), manifest.meta.name.as_str()));
            }
        }
    }
    let dropped = records.iter().filter(|record| {
        !named.contains(&ObjectIdentity::of_record(record))
            && !unmapped.contains(&(record.group.as_str(), record.name.as_str()))
    });
    dropped.cloned().collect()
}

/// The objects that are about to be written for the first time, without the uids that they will have. They are recorded
/// before the first write: an agent that ends meanwhile leaves no object that the next agent does not know of.
pub fn new_records(
    manifests: &[PlannedManifest],
    verdict: &Verdict,
    records: &[AppliedResource],
    is_complete: bool,
) -> Vec<AppliedResource> {
    if is_complete {
        return Vec::new();
    }
    let known = uids_of(records);
    let allowed = manifests
        .iter()
        .filter(|manifest| verdict.refusal_of(manifest.ordinal).is_none());
    allowed
        .filter_map(|manifest| manifest.target.as_ref().ok())
        .filter(|target| target.is_written() && !known.contains_key(&target.identity()))
        .map(|target| target.to_record(""))
        .collect()
}

/// What is recorded after a pass.
pub fn records_after(
    before: &[AppliedResource],
    outcomes: &[ManifestOutcome],
    manifests: &[PlannedManifest],
    still_present: &[AppliedResource],
) -> AppliedManifestWorkStatus {
    let target_of = |outcome: &ManifestOutcome| -> Option<&TargetObject> {
        manifests.get(outcome.ordinal)?.target.as_ref().ok()
    };
    // An object that is only read does not belong to the work, and a record would say that it does.
    let written = outcomes
        .iter()
        .filter(|outcome| target_of(outcome).is_some_and(TargetObject::is_written));
    let mut records: Vec<AppliedResource> = written.filter_map(|outcome| outcome.recorded.clone()).collect();
    // What a manifest names stays recorded, even while it cannot be written.
    let dropped = dropped(before, manifests);
    let dropped: HashSet<_> = dropped.iter().map(ObjectIdentity::of_record).collect();
    let present = outcomes.iter().filter_map(|outcome| outcome.recorded.as_ref());
    let present: HashSet<_> = present.map(ObjectIdentity::of_record).collect();
    let absent = outcomes.iter().filter(|outcome| outcome.is_absent);
    let absent: HashSet<_> = absent
        .filter_map(|outcome| Some(target_of(outcome)?.identity()))
        .collect();
    let kept = before.iter().filter(|record| {
        let identity = ObjectIdentity::of_record(record);
        let was_never_written = record.uid.is_empty() && absent.contains(&identity);
        !was_never_written && !dropped.contains(&identity) && !present.contains(&identity)
    });
    records.extend(kept.cloned());
    records.extend(still_present.iter().cloned());
    records.sort();
    records.dedup();
    AppliedManifestWorkStatus {
        applied_resources: records,
        eviction_start_time: None,
    }
}
