//! NamespaceGrant: a Role or a RoleBinding in every namespace that a selector selects.
//!
//! * A grant is expanded here, in the cluster that has the namespaces: it follows them as they are created, labelled,
//!   unlabelled and deleted, without the hub and also while the hub cannot be reached.
//! * Drift is repaired at once; an object that no grant wants any more is deleted at once.
//! * Several grants may want the same object: with the same content they share it, otherwise the oldest grant has it and the
//!   others report a conflict.
//! * A foreign object is left alone and reported, unless the grant adopts.
//! * An object that a work delivers with the same content is shared: neither takes it away from the other. With different
//!   content it is the work's, because a work names the namespace, and the grant reports the overlap.
//! * An unwanted object that a finalizer keeps is emptied, so that it grants nothing while it stays. An object that is not
//!   revoked yet is in the status of the grant that made it, or, if that is gone, in an event on the hub.
//! * Removing owner or label from an object does not take it away from its grant.
//! * The status counts namespaces and names the failing ones; it is about the generation that it says.
//! * A Role that a permission defines and cannot have in a namespace is not bound there: the binding would grant the rules of a
//!   foreign Role.
//! * A grant that is deleted in the foreground is released when the last object that it made is gone.
//!
//! Data flow, per namespace: caches (`observe`, [`ownership`]) -> [`plan`] -> `apply`; per grant: the outcomes in its
//! namespaces -> [`status`].

mod apply;
mod controller;
mod definition;
mod grant;
pub mod model;
pub mod object;
mod observe;
pub mod ownership;
pub mod plan;
mod reconcile;
pub mod status;
#[cfg(test)]
mod tests;

pub use controller::run;
