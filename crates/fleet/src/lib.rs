//! A hub and managed clusters on one machine, embedded or real, with the parts of writ running on them.
//!
//! `writ up`, `writ tour` and the scenarios of `e2e` use it. Hub, agent and sync run with exactly the rights that
//! `deploy/` ships.
//!
//! ```text
//! Fleet::start ─▶ Cluster::start (hub, cluster1, ...) ─▶ install_crds ─▶ manifests::apply_folder (deploy/)
//!      │
//!      ├─ run_hub ─▶ accept(1) ─▶ run_agent(1) ─▶ run_sync(1)      one at a time, for a scenario
//!      └─ run_everything ─▶ Everything                             all of them, for `writ up`
//! ```
//!
//! Every part is a [`Running`]: it stops when it is stopped or dropped, and so does a [`Cluster`]. Real control planes need
//! the feature `real`, which links code that starts other programs.

pub mod cluster;
pub mod everything;
pub mod fleet;
pub mod git;
pub mod manifests;
pub mod wait;

pub use cluster::{Cluster, Kind};
pub use everything::Everything;
pub use fleet::{Fleet, Running};
