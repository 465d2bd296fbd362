//! Delivers ManifestWorks: what a work on the hub asks for becomes true on the managed cluster, and stays true.
//!
//! `hub watch → plan (manifests) → gate (executor) → delivery: record, write, prune, revoke → status on the hub`,
//! and `drift watches → queue` for the objects that were delivered.
//!
//! * One watch on the hub, for the works of this cluster. What was applied stays applied while the hub is away.
//! * Every object names the work's AppliedManifestWork as an owner; it is deleted with the last of its works.
//! * Manifests are applied in the order of their kinds' ranks, side by side within a rank. Rights are granted first and
//!   revoked last: see [`plan::delivery`].
//! * Drift is noticed by metadata-only watches on the kinds that were applied, and corrected at once: see [`drift`].
//! * A work with an executor is written only if the executor may hold every object: see [`gate`].
//! * One writer per status, and only differences are written: an unchanged work costs no request.

mod applied_work;
mod apply;
mod controller;
mod drift;
mod gate;
mod interest;
mod model;
pub mod options;
mod plan;
mod reconcile;
mod report;
mod state;
mod status;
#[cfg(test)]
mod tests;

pub use controller::run;
