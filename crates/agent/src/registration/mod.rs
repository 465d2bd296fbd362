//! How this cluster joins a hub and stays there.
//!
//! [`join`] makes the ManagedCluster with a bootstrap identity, asks for a client certificate, waits until somebody
//! accepts the cluster, and keeps the identity in a file or a Secret. [`keep`] does the same for a running agent:
//! it renews the identity at 70 to 80 % of its life and starts the controllers anew with it.
//!
//! The controller itself renews the cluster's lease on the hub, and reports what a hub wants to know: joined,
//! available, version, capacity, claims. The claim `agent.writ.dev` names the controllers that this agent runs.
//! It makes the namespaces that the sets of the cluster ask for, and says of each whether it is there.
//! Labels that the agent was told to set are set with its own identity; a refusal is a condition of the cluster.

mod api_health;
pub(crate) mod certificate;
mod controller;
mod heartbeat;
pub mod identity;
mod identity_check;
mod join;
pub mod plan;
pub mod store;
#[cfg(test)]
mod tests;

pub use controller::run;
pub use join::{Driver, Joining, join, joined_before, keep};
