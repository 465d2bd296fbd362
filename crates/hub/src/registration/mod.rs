//! How clusters join the hub and leave it.
//!
//! A cluster asks to join by creating its ManagedCluster and a certificate request. Once an operator with the right to accept
//! it has done so, the controller makes the cluster's namespace and lease, gives the agent the rights that it needs and no
//! more, and approves exactly the one request that matches. Several matching requests are a question for a person: none is
//! approved. After the first certificate only the agent's own identity renews, if the hub let that agent in for this very
//! cluster, or found it joined when it took the cluster over.
//!
//! While a cluster is in, the controller watches its lease: a lease that is not renewed for five times its duration makes the
//! cluster `Unknown` and tainted. A denied cluster loses every right at once. A deleted one keeps the right to its works until
//! none is left, then everything of it goes, in order; `writ.dev/force-detach: "true"` on the ManagedCluster is the way out
//! when its agent is gone for good.
//!
//! Data flow, per cluster: caches and heartbeats -> `Observation` -> [`plan::cluster`] and [`plan::rights`] -> `apply`;
//! certificate requests -> [`plan::agent_requests`] -> `certificate_requests`. What operators run is in [`operator_actions`].

mod apply;
mod certificate_requests;
mod controller;
mod model;
mod observe;
pub mod operator_actions;
pub mod plan;
#[cfg(test)]
mod tests;

pub use controller::run;
pub use model::{
    ACCEPT_CSR_ANNOTATION, AGENT_USER_ANNOTATION, CONDITION_DELETING, FORCE_ANNOTATION, ISSUED_ANNOTATION,
    LEASE, TAKEN_OVER_ANNOTATION,
};
