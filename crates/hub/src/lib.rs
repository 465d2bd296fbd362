//! Controllers and admission that run on the hub.
//!
//! Every controller is a folder of this crate and a row in [`CONTROLLERS`]. They know nothing of each other:
//! they meet through objects in the hub's API server.

pub mod admission;
pub mod agent_identity;
