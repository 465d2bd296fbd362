//! A small Kubernetes API server in memory: a fleet in one process.

pub mod admission;
pub mod builtin;
pub mod patch;
pub mod schema;
pub mod selector;
pub mod ssa;
