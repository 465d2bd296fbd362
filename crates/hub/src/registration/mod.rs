//! How clusters join the hub and leave it.
//!
//! A cluster asks to join by making its ManagedCluster and a certificate request. Somebody who may accept it says
//! so; the controller then makes the cluster's namespace and lease, gives the agent the rights that it needs and
//! no more, and approves exactly the one request that matches. Several that match are a question for a person:
//! none is approved. After the first certificate only the agent's own identity renews, once an agent has come in for this
//! very cluster or had come in before this hub took it over.
//!
//! While a cluster is in, the controller watches its lease: one that is not renewed for five times its duration
//! makes the cluster `Unknown` and tainted. A denied cluster loses every right at once. A deleted one keeps the
//! right to its works until none is left, then everything of it goes, in order; `writ.dev/force-detach: "true"`
//! on the ManagedCluster is the way out when its agent is gone for good.

mod apply;
mod certificate_requests;
mod controller;
pub mod csr;
pub mod operator_actions;
pub mod plan;
pub mod rights;
#[cfg(test)]
mod tests;

pub use controller::run;

/// On a cluster: the certificate request, as `name@uid`, that somebody who may accept the cluster chose.
pub const ACCEPT_CSR_ANNOTATION: &str = "writ.dev/accept-csr";
/// On a cluster: the certificate request, as `name@uid`, that its agent was last let in with. From then on only the
/// agent itself renews.
pub const ISSUED_ANNOTATION: &str = "writ.dev/certificate-issued";
/// On a cluster: the user of the agent that was last let in. The rights are this user's and not its group's, so that a
/// certificate of a former agent, or of a former cluster of the name, is worth nothing from then on.
pub const AGENT_USER_ANNOTATION: &str = "writ.dev/agent-user";
/// On a cluster, written once when the hub first sees it accepted: `true` if an agent had joined it before, under
/// another hub. What is reported as joined later proves nothing: whoever holds a certificate of a former cluster of that
/// name has the rights of the name, and can report it.
pub const TAKEN_OVER_ANNOTATION: &str = "writ.dev/taken-over";
/// On a cluster that is being deleted, with value `true`: do not wait for its agent.
pub const FORCE_ANNOTATION: &str = "writ.dev/force-detach";
/// The lease that the agent renews.
pub const LEASE: &str = "managed-cluster-lease";
