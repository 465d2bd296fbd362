//! What is remembered of an object: enough to tell whether a change is our own write, and whether it can matter.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::uid::PackedUid;
use crate::owner::is_delivered;

/// A resource version as a number; servers count upwards, so a larger one is newer. 0 if it is none.
pub fn resource_version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// An object as it was last written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSeen {
    /// The hash of what the work asked for.
    pub wanted: u64,
    /// The object's uid.
    pub uid: PackedUid,
    pub(super) fingerprint: Fingerprint,
    /// The hash of the uid of its AppliedManifestWork, if it has exactly one.
    pub(super) sole_owner: Option<u64>,
    /// Whether the work's own AppliedManifestWork owned it.
    pub(super) is_owned: bool,
    /// Whether any change of its content matters, not only one that can be drift.
    pub(super) reads_content: bool,
}

/// The metadata of one version of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) version: u64,
    generation: Option<i64>,
    metadata: u64,
}

impl Fingerprint {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        let mut hasher = DefaultHasher::new();
        metadata.labels.hash(&mut hasher);
        metadata.annotations.hash(&mut hasher);
        metadata.finalizers.hash(&mut hasher);
        metadata.uid.hash(&mut hasher);
        metadata.deletion_timestamp.is_some().hash(&mut hasher);
        for owner in metadata.owner_references.iter().flatten() {
            owner.uid.hash(&mut hasher);
        }
        Self {
            version: resource_version(metadata.resource_version.as_deref()),
            generation: metadata.generation,
            metadata: hasher.finish(),
        }
    }

    /// Whether only the status can differ: any other change raises the generation or changes the metadata.
    pub(super) fn has_same_spec(&self, other: &Self) -> bool {
        self.generation.is_some() && self.generation == other.generation && self.metadata == other.metadata
    }
}

impl LastSeen {
    /// The server's answer to a write or a read for this owner.
    pub fn of(metadata: &ObjectMeta, wanted: u64, reads_content: bool, owner_uid: &str) -> Self {
        let mut references = metadata.owner_references.iter().flatten();
        Self {
            wanted,
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            fingerprint: Fingerprint::of(metadata),
            sole_owner: sole_owner(metadata),
            is_owned: references.any(|reference| reference.uid == owner_uid),
            reads_content,
        }
    }
}

fn sole_owner(metadata: &ObjectMeta) -> Option<u64> {
    let references = metadata.owner_references.iter().flatten();
    let mut works = references.filter(|reference| is_delivered(reference));
    let only = works.next()?;
    works.next().is_none().then(|| hash_uid(&only.uid))
}

pub(super) fn hash_uid(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
