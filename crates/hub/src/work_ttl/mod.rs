//! Deletes complete works once their time to live is over.
//!
//! Only `spec.deleteOption.ttlSecondsAfterFinished` counts, and only once the condition `Complete` is true. Works of a
//! ManifestWorkReplicaSet are left alone, as it would make them again.
//!
//! Works of the hub -> `plan::due` -> a deletion of exactly what was seen.

mod controller;
mod plan;

pub use controller::run;
