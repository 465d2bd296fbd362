//! What is remembered of an object: enough to tell whether a change is ours and can matter.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::uid::Uid;
use crate::work::{apply::is_delivered, cache::version};

/// What was last written or read of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The hash of what the work wants.
    pub wanted: u64,
    /// The object's uid.
    pub uid: Uid,
    pub(super) seen: Seen,
    /// The hash of the uid of its AppliedManifestWork, if it belongs to exactly one.
    pub(super) sole_owner: Option<u64>,
    /// Whether it belonged to the work's own AppliedManifestWork.
    pub(super) owned: bool,
    /// Whether any change of the content matters, not only one that can be drift.
    pub(super) reads_content: bool,
}

/// What a version of an object looks like from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) version: u64,
    generation: Option<i64>,
    metadata: u64,
}

impl Seen {
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
            version: version(metadata.resource_version.as_deref()),
            generation: metadata.generation,
            metadata: hasher.finish(),
        }
    }

    /// Whether only the status can differ: the server counts changes of anything else.
    pub(super) fn same_spec(&self, other: &Self) -> bool {
        self.generation.is_some() && self.generation == other.generation && self.metadata == other.metadata
    }
}

impl Mark {
    /// What the server answered to a write or a read.
    pub fn of(metadata: &ObjectMeta, wanted: u64, reads_content: bool, owner: &str) -> Self {
        let mut references = metadata.owner_references.iter().flatten();
        Self {
            wanted,
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            seen: Seen::of(metadata),
            sole_owner: sole_owner(metadata),
            owned: references.any(|reference| reference.uid == owner),
            reads_content,
        }
    }
}

fn sole_owner(metadata: &ObjectMeta) -> Option<u64> {
    let references = metadata.owner_references.iter().flatten();
    let mut works = references.filter(|reference| is_delivered(reference));
    let only = works.next()?;
    works.next().is_none().then(|| hash_of(&only.uid))
}

pub(super) fn hash_of(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
