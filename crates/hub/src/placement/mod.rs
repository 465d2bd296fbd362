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

mod controller;
pub mod explain;
pub mod facts;
pub mod groups;
pub mod layout;
pub mod plan;
pub mod predicates;
pub mod prioritizers;
pub mod rate;
pub mod spread;
pub mod taints;
#[cfg(test)]
mod tests;

pub use controller::{Event, Scheduler, Wanted, run};
