//! Which works were made for a set.

use kube::ResourceExt;
use sha2::{Digest, Sha256};
use writ_api::work::{ManifestWork, ManifestWorkReplicaSet, REPLICA_SET_LABEL};

/// The value of the label that ties works to a set; `None` if it would be too long for a label.
pub fn owner(set: &ManifestWorkReplicaSet) -> Option<String> {
    let value = format!("{}.{}", set.namespace().unwrap_or_default(), set.name_any());
    (value.len() <= 63).then_some(value)
}

/// The name of the works of a set: the name of the set, and a hash of its namespace and name, as sets of one name in two
/// namespaces may select one cluster.
pub fn work_name(set: &ManifestWorkReplicaSet) -> String {
    let full = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
    let digest = Sha256::digest(full.as_bytes());
    let short = digest
        .iter()
        .take(4)
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    format!("{}-{short}", set.name_any())
}

/// Whether a work was made for this set. The label alone is not enough: a user who may label works could have the works of
/// others deleted.
pub fn is_own(set: &ManifestWorkReplicaSet, work: &ManifestWork) -> bool {
    let labelled = owner(set).is_some_and(|owner| work.labels().get(REPLICA_SET_LABEL) == Some(&owner));
    labelled && (work.name_any() == work_name(set) || is_named_by_ocm(set, work))
}

/// Why a work of the name that the set uses must not be replaced, if it was not made for the set.
pub fn foreign(set: &ManifestWorkReplicaSet, work: &ManifestWork) -> Option<String> {
    (!is_own(set, work)).then(|| {
        format!(
            "ManifestWork {}/{} was not made for this ManifestWorkReplicaSet and is left alone: delete it, or give it the label \
             {REPLICA_SET_LABEL}={} to have it replaced",
            work.namespace().unwrap_or_default(),
            work.name_any(),
            owner(set).unwrap_or_default()
        )
    })
}

/// Whether OCM's controller named this work: the API server appends five characters to the name of the set, none of them a
/// vowel.
fn is_named_by_ocm(set: &ManifestWorkReplicaSet, work: &ManifestWork) -> bool {
    let name = work.name_any();
    let suffix = name.strip_prefix(&set.name_any());
    suffix.is_some_and(|suffix| {
        suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
    })
}
