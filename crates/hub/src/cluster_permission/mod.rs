//! ClusterPermission: RBAC for managed clusters, written on the hub.
//!
//! * One ManifestWork per permission in the namespace of the cluster, named and owned as by OCM; more of them only where one
//!   would be too large. A work that is edited or deleted is restored at once.
//! * Each entry of a spec is built on its own. An entry that cannot be built is a condition, and what it granted is revoked;
//!   the rest is delivered.
//! * A ManagedServiceAccount becomes the ServiceAccount that its agent keeps. When the account goes, so does its grant.
//! * An object that two permissions of a cluster name belongs to the older one; the other shares it or reports the conflict.
//! * A namespace selector is evaluated by the agent, where the namespaces are, if the agent reports that it can.
//! * Nothing is called applied or revoked before the agent has said so of exactly this content.
//!
//! Caches -> `observe` -> [`spec`] and `plan` -> `apply` -> the agent, whose `reports` -> `status`.
//!
//! `dependents` says which permissions a change concerns; `former_works` deletes the works of permissions that are gone.
//! The invariants of a plan are in `docs/design/permission-plan.md`.

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
