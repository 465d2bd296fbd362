//! Placement: chooses clusters out of the sets that are bound to a namespace.
//!
//! [`plan`] is the whole scheduler, pure: candidates come from bound sets with each set's own key; predicates and
//! taints leave some out, each with a reason; scores, `PreferNoSelect` and spread constraints choose among the rest;
//! the chosen are divided into groups and decision objects. It is stable: a cluster keeps its place, and the
//! object that it is written in, as long as nothing asks for a change. A placement that cannot be understood
//! keeps its decisions and says why.
//!
//! The controller keeps a verdict per placement and cluster, so that a change of one cluster costs one verdict
//! per placement and not a look at the fleet.

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
