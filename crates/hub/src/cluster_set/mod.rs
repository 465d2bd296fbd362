//! Sets of clusters.
//!
//! A set holds the clusters that carry one label, `<exclusive key>: <name of the set>`, or those that a selector matches.
//!
//! * The status of every set counts its members, and names clusters that carry its label without being members.
//! * A cluster whose label names no set, or a set that it is not a member of, has a condition that says so.
//! * A binding says whether its set exists. The sets `default` and `global` always exist.
//! * Agents read from the status of their cluster which namespaces its sets ask for.
//! * Each set comes with three ClusterRoles to bind: admin, bind and view, each limited to that set.
//! * A deleted set that asks for it is kept until its label is removed from all clusters.
//!
//! Which users may move a cluster between sets is decided by admission. [`membership`] alone decides about members, for
//! admission, this controller and placement.
//!
//! Sets and clusters -> `observe` ([`index`]) -> `plan` -> `apply`, `status`.

mod apply;
mod controller;
pub mod index;
pub mod membership;
mod model;
mod observe;
mod plan;
mod status;
#[cfg(test)]
mod tests;

pub use controller::run;
