//! Accounts, seen from the hub: what an agent cannot or must not decide alone.
//!
//! An account in a namespace that is bound to cluster sets becomes one account per cluster of these sets, and
//! follows clusters as they join and leave; a name that somebody else has there is never taken. An account of the
//! older group `proxy.open-cluster-management.io` owns one of `authentication.open-cluster-management.io`. An account
//! with a time to live ends in time.
//!
//! Every cluster gets the add-on `managed-serviceaccount` and, for its own identity only, the right to read its
//! accounts and to write exactly their Secrets: by name through a Role, and for creation, which a Role cannot limit
//! by name, through a ValidatingAdmissionPolicy. The right is given only while the policy is in place. Agents may
//! not watch Secrets; the hub does, keeps digests only, and asks the agent for a look when one differs.

mod clusters;
mod controller;
mod foreign_secrets;
mod mirror;
mod model;
pub mod plan;
mod reconcile;
mod secrets;
#[cfg(test)]
mod tests;
mod write;

pub use controller::run;
pub use model::ADDON;
