//! The AppliedManifestWork of each work: the record of its objects on the managed cluster, and their owner.

mod claims;
mod eviction;
mod lifecycle;
mod record;
