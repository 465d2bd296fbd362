//! One ManifestWork for every cluster that the placements of a ManifestWorkReplicaSet select.
//!
//! * Every selected cluster gets a work with the template's spec, as fast as the rollout strategy allows; a cluster
//!   that is not selected any more loses it.
//! * A rollout goes on when works succeed: by their condition `Progressing` where rules compute one, otherwise by
//!   `Applied` and `Available`. Works of kinds whose progress can be told get such a rule by themselves.
//! * The status counts works and says whether placements were found, works applied and the rollout done.
//! * A cluster that cannot be written stops no other: it counts as failed, is named in the status, and is tried again
//!   after growing pauses, or at once when its namespace appears.
//! * A deletion takes the works along, and waits for them if it is asked to.

mod apply;
mod controller;
mod failures;
mod observe;
mod plan;
mod progress;
pub(crate) mod rollout;
#[cfg(test)]
mod tests;

pub use controller::run;
