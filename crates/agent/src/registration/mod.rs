//! How this cluster joins a hub and stays there.
//!
//! [`join`] creates the ManagedCluster with a bootstrap identity, asks for a client certificate, waits until the cluster is
//! accepted, and keeps the identity in a file or a Secret. [`keep`] does the same for a running agent: it renews the identity at
//! 70 to 80 % of its life and restarts the controllers with it. Both run before and around the controllers, which is why they
//! are none themselves: `docs/design/registration.md`.
//!
//! The controller renews the cluster's lease on the hub, and reports its facts: joined, available, version, capacity, claims.
//! The claim `agent.writ.dev` names the controllers that this agent runs. It creates the namespaces that the sets of the
//! cluster ask for, and reports whether each exists. Configured labels are set with the agent's own identity; a refusal is a
//! condition of the cluster.
//!
//! Data flow: caches (`observe`) and the `heartbeat` -> `Facts` -> [`plan`] -> `apply`.

mod api_health;
mod apply;
pub(crate) mod certificate;
mod controller;
mod heartbeat;
pub mod identity;
mod identity_check;
mod join;
mod keep;
mod model;
mod observe;
pub mod plan;
pub mod store;
#[cfg(test)]
mod tests;

pub use controller::run;
pub use join::{join, joined_before};
pub use keep::keep;
pub use model::{Driver, Joining};
