//! The manager: the account and the rights of every sync, for its whole life.
//!
//! Syncs, roles, namespaces -> `observe` -> [`plan`] -> `apply`: account, base role, bindings, inventory -> `status`
//!
//! * For each RootSync and RepoSync it keeps a ServiceAccount, a base Role limited to the objects of the sync itself, an
//!   empty ResourceGroup, and one binding per role in force. Roles come from `spec.override.roleRefs` (or
//!   `spec.overrides.roleRefs`); a RootSync that names none is bound to the default role. A RepoSync has the base Role only;
//!   further roles are bound to its account by those who may do so.
//! * New bindings are made before old ones are removed. A role that cannot be bound stops nothing: roles that are no longer
//!   named are revoked in the same pass.
//! * Changes by others are undone at once, in tenant namespaces too, and also while the sync is being deleted, until its
//!   reconciler has reported the end of its teardown.
//! * Only the manager writes finalizers, so a reconciler needs no right to change a sync.

mod affected;
mod apply;
mod config_sync_bindings;
pub mod controller;
pub mod deployment;
mod manager_view;
mod model;
mod observe;
pub mod plan;
mod status;
#[cfg(test)]
mod tests;

pub use self::controller::run;
