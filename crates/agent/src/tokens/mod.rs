//! Accounts of the managed cluster, with their tokens on the hub.
//!
//! For every ManagedServiceAccount in this cluster's namespace on the hub there is a ServiceAccount of that name in
//! the agent's namespace and a Secret of that name on the hub with a token that the cluster accepts. The token is
//! renewed at 70 to 80 % of its life, at once when the account asks for another one, and whenever the Secret or the
//! ServiceAccount was changed, deleted or replaced. The Secret is written before the status, so that who follows
//! the status finds the token.
//!
//! A ServiceAccount or Secret that was there before is left alone unless the account says that it may be taken
//! over. When the account goes, the ServiceAccount goes, and every token of it dies; so it does when the agent moves to
//! another namespace. The agent's own ServiceAccount owns those that it makes: they go with it.
//!
//! In steady state nothing is sent: the agent watches, and looks at a token at most every six hours.

pub mod claims;
mod controller;
mod io;
pub mod plan;
mod previous_service_account;
pub mod reconcile;
pub mod secret;
pub mod service_account;
mod service_account_lifecycle;
pub mod state;
pub mod status;
#[cfg(test)]
mod tests;

pub use controller::run;
