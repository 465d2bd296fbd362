//! Pure: what the hub wants for a cluster, its agent's rights, and which certificate request is approved.

pub mod agent_requests;
pub mod cluster;
pub mod rights;
