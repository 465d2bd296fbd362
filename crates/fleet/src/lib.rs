//! A hub and managed clusters on one machine, of either kind, with everything of writ running on them.
//!
//! `writ up`, `writ tour` and the scenarios of `e2e` stand on it: hub, agent and sync run with the rights that
//! `deploy/` ships, never more.

pub mod cluster;
pub mod everything;
pub mod fleet;
pub mod git;
pub mod manifests;
pub mod wait;

pub use cluster::{Cluster, Kind};
pub use everything::Everything;
pub use fleet::{Fleet, Running};
