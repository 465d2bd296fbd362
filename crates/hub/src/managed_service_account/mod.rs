//! Accounts, as the hub sees them: what an agent cannot or must not decide alone.
//!
//! An account in a namespace that is bound to cluster sets becomes one account per cluster of these sets, and follows
//! clusters as they join and leave; a name that is taken there is never taken over. An account of the older group
//! `proxy.open-cluster-management.io` owns one of `authentication.open-cluster-management.io`. An account with a time to live
//! is deleted when that ends.
//!
//! Every cluster gets the add-on `managed-serviceaccount` and, for its own identity only, the right to read its accounts and
//! to write exactly their Secrets: by name through a Role, and for creation, which a Role cannot limit by name, through a
//! ValidatingAdmissionPolicy. The right is given only while the policy is in place. Agents may not watch Secrets; the hub
//! does, keeps digests only, and asks the agent for a repair when one differs. `docs/design/account-secrets.md` says why.
//!
//! Data flow, per `Key`: caches (`observe`) -> [`plan`] -> writes (`reconcile`), each key in a file of its name.

mod controller;
mod foreign_secrets;
mod model;
mod observe;
pub mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

pub use controller::run;
pub use model::ADDON;
