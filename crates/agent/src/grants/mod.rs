//! NamespaceGrant: a Role or a RoleBinding in every namespace that a selector selects.
//!
//! * The grant is expanded here, where the namespaces are: it follows them as they are created, labelled,
//!   unlabelled and deleted, without the hub and also while the hub cannot be reached.
//! * What somebody changes or deletes is put right at once; what no grant wants any more is deleted at once.
//! * Several grants may want the same object: with the same content they share it, otherwise the oldest grant
//!   has it and the others report a conflict.
//! * An object that no grant made is left alone and reported, unless the grant adopts.
//! * An object that a work delivers with the same content is shared: neither takes it away from the other. With another
//!   content it is the work's, because a work names the namespace, and the grant reports the overlap.
//! * What nobody wants any more and somebody's finalizer keeps is emptied, so that it grants nothing while it stays. What is
//!   not revoked yet is in the status of the grant that made it, or, if that is gone, an event on the hub.
//! * Taking owner or label off an object does not take it away from its grant.
//! * The status counts namespaces and names the failing ones; it is about the generation that it says.
//! * A Role that a permission defines and cannot have in a namespace is not bound there: it would grant what others wrote.
//! * A grant that is deleted in the foreground goes when the last of what it made is gone.
//!
//! [`ownership`] knows whose an object is, [`plan`] decides for one namespace, [`status`] says what a grant reports, [`controller`] watches and writes differences.

pub mod controller;
mod object;
mod observe;
mod ownership;
pub mod plan;
pub mod status;

#[cfg(test)]
mod tests;

pub use controller::run;
