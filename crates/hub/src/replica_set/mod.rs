//! One ManifestWork for every cluster that the placements of a ManifestWorkReplicaSet select.
//!
//! * Every selected cluster gets a work with the spec of the template, as fast as the rollout strategy allows. The work of
//!   a cluster that is not selected any more is deleted.
//! * A rollout goes on when works succeed: by their condition `Progressing` where a rule computes it, otherwise by
//!   `Applied` and `Available`. Manifests of well-known kinds get such a rule by default.
//! * The status counts works and says whether placements were found, works applied and the rollout completed.
//! * A cluster whose work cannot be written does not stop the others: it counts as failed, is named in the status, and is
//!   retried with growing pauses, or at once when its namespace is created.
//! * Deleting a set deletes its works, and waits for that with the cascade deletion policy `Foreground`.
//!
//! Sets, works and decisions -> `observe` -> `plan` (`rollout`) -> `apply` -> status.

mod apply;
mod controller;
mod failures;
mod model;
mod observe;
mod ownership;
mod plan;
mod progress_rules;
pub(crate) mod rollout;
#[cfg(test)]
mod tests;

pub use controller::run;
