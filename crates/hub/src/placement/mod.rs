//! Placement: chooses clusters out of the sets that are bound to a namespace.
//!
//! * Candidates are the members of the bound sets. Predicates and taints exclude some, each with a reason; scores,
//!   `PreferNoSelect` and spread constraints choose among the rest. The chosen clusters are divided into groups and
//!   decision objects.
//! * The choice is stable: a cluster keeps its place, and the object that it is written in, unless a change requires
//!   otherwise. A restarted hub continues from the stored decisions.
//! * An invalid placement keeps its decisions, and its status says why.
//! * A verdict is kept per placement and cluster, so a change of one cluster costs one verdict per placement, and not an
//!   evaluation of the fleet.
//! * `writ placement explain` runs the same plan with the rights of its user.
//!
//! Clusters, sets, bindings, decisions and scores -> `observe` -> `scheduler` ([`plan`]) -> `apply`.

mod apply;
pub mod cluster_view;
mod controller;
mod decision_objects;
mod decisions_index;
pub mod explain;
mod memory;
pub mod model;
mod observe;
pub mod plan;
pub mod scheduler;
#[cfg(test)]
mod tests;

pub use controller::run;
