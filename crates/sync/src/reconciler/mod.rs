//! The reconciler: makes the cluster look like a repository, with the account of one sync and no other.
//!
//! Git -> [`source`] -> [`parse`] -> `desired` + `observed` -> `plan` -> `execute` -> cluster, inventory -> `status`
//!
//! * One task per sync. It looks for a new commit every period, and applies what differs by server-side apply: what others
//!   need first, everything of one wave at once.
//! * The inventory is written before anything is applied, so nothing that was created is forgotten. Objects of the
//!   inventory that the source no longer declares are pruned, but never while a part of the source is unknown.
//! * Drift is seen by watches on objects with the label of the sync, in the namespaces that it uses, and corrected at once.
//! * What the account may not do is reported with verb and resource, while everything else goes on.
//! * A reconciler writes the status of its own sync and its own inventory, and never a sync: finalizers are the manager's.

mod apply;
mod desired;
mod drift;
mod engine;
pub mod error;
mod execute;
mod fetch;
mod finalize;
pub mod object;
mod observe;
mod observed;
pub mod parse;
mod plan;
mod session;
mod shared;
pub mod source;
mod status;
mod tasks;
#[cfg(test)]
mod tests;

pub use self::{
    apply::{ManagerView, inventory},
    tasks::{Tasks, run_one},
};
pub(crate) use source::private_clones;
