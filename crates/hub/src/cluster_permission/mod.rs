//! ClusterPermission: RBAC for managed clusters, written on the hub.
//!
//! * One ManifestWork per permission in the namespace of the cluster, named and owned as upstream does; more
//!   of them only when one would be too large. A work that somebody edits or deletes is restored at once.
//! * Each entry of a spec is built on its own. One that cannot be built is a condition and is revoked; the rest
//!   is delivered.
//! * A ManagedServiceAccount becomes the ServiceAccount that its agent keeps. When it goes, so does its grant.
//! * An object that two permissions of a cluster name is the older one's; the other shares it or reports the conflict.
//! * A namespace selector is expanded by the agent, where the namespaces are, if the agent says that it can.
//! * Nothing is called applied or revoked before the agent has said so of exactly this content.
//!
//! [`validate`] says what can never work, [`build`] makes objects of entries, [`split`] puts them into works,
//! [`plan`] joins these, [`status`] folds the agent's reports, [`controller`] watches and writes differences.

mod apply;
mod controller;
mod dependents;
mod former_works;
pub mod model;
pub mod naming;
mod observe;
mod plan;
mod reports;
pub mod spec;
mod status;

#[cfg(test)]
mod tests;

pub use controller::run;
