//! Accounts of the managed cluster, with their tokens on the hub.
//!
//! For every ManagedServiceAccount in this cluster's namespace on the hub there is a ServiceAccount of that name in
//! the agent's namespace and a Secret of that name on the hub with a token that the cluster accepts. The token is
//! renewed at 70 to 80 % of its life, at once when the account asks for another one, and whenever the Secret or the
//! ServiceAccount was changed, deleted or replaced. The Secret is written before the status, so that a consumer that follows
//! the status finds the token.
//!
//! A foreign ServiceAccount or Secret is left alone unless the account says that it may be adopted. When the account is
//! deleted, the ServiceAccount is, and every token of it dies; likewise when the agent moves to another namespace. The agent's
//! own ServiceAccount owns those that it creates, so that they are deleted with it.
//!
//! In steady state nothing is sent: the agent watches, and reviews a token at most every six hours.
//! `docs/design/account-tokens.md` says why.
//!
//! Data flow, per account: caches (`observe`) and what is remembered ([`state`]) -> [`plan`] -> requests (`io`,
//! `service_account_lifecycle`, `previous_service_account`), in the order that [`reconcile`] gives.

mod controller;
mod io;
pub mod model;
pub mod observe;
pub mod plan;
mod previous_service_account;
pub mod reconcile;
mod service_account_lifecycle;
pub mod state;
#[cfg(test)]
mod tests;

pub use controller::run;
