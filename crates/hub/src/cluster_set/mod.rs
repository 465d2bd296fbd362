//! Sets of clusters.
//!
//! A set holds the clusters that carry one label, `<exclusive key>: <name of the set>`, or those that a selector
//! matches. This controller keeps the status of every set (how many members, which clusters carry its label
//! without having joined), tells clusters whose label names no set, says whether a binding has an effect, keeps
//! the sets `default` and `global`, tells agents which namespaces their sets ask for, and offers three ClusterRoles
//! per set that people can bind: admin, bind and view, each limited to that set.
//!
//! Who may move a cluster between sets is decided by admission; [`membership`] is the one place that says who is
//! in, for admission, this controller and placement alike.

mod controller;
pub mod index;
pub mod membership;
pub mod plan;
#[cfg(test)]
mod tests;

pub use controller::run;
