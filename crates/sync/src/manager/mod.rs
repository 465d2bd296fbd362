//! The manager: the account and the rights of every sync, for its whole life.
//!
//! For each RootSync and RepoSync it keeps a ServiceAccount, a base Role limited to the sync's own objects, an empty
//! ResourceGroup, and one binding per role in force. Roles come from `spec.override.roleRefs` (or the spelling
//! `spec.overrides.roleRefs`); without any, a RootSync is bound to the default role. A RepoSync has the base Role
//! only: what more it may do, somebody who may do it binds himself.
//!
//! New bindings are made before old ones go. But a role that cannot be bound keeps no other one alive: what is not
//! asked for any more is revoked in the same pass. Whatever somebody changes is put back at once, in tenant
//! namespaces too, also while the sync is being deleted, until its reconciler has reported that its teardown is
//! done. The manager alone writes finalizers, so a reconciler needs no right to change a sync.

mod apply;
mod config_sync_bindings;
pub mod controller;
pub mod deployment;
mod manager_view;
mod observe;
pub mod plan;

pub use controller::run;

#[cfg(test)]
mod tests;
