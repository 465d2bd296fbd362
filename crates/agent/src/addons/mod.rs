//! The hub credential of the add-on `managed-serviceaccount`, where this agent does not keep the accounts itself.
//!
//! The hub then delivers the add-on as a Deployment of its own, and says in the ManagedClusterAddOn's `status.registrations`
//! which user it shall be. As upstream's agents do, this controller asks the hub for a certificate of exactly that user, or,
//! where the hub hands out tokens, for a token of the add-on's own account, and keeps it, with a kubeconfig, in the Secret
//! `managed-serviceaccount-hub-kubeconfig` of the add-on's namespace, which the Deployment mounts. It is renewed at 70 to 80 % of
//! its life; a Secret that is edited or deleted is replaced with a new credential. Once the hub wants no such user any more, the
//! Secret is deleted.
//!
//! Only this one add-on is registered: the rights that are shipped name its Secret and no other.
//!
//! Data flow: the add-on and the Secret (`observe`) -> [`plan`] -> requests and writes (`credential`).

mod controller;
mod credential;
pub mod model;
mod observe;
pub mod plan;
#[cfg(test)]
mod tests;

pub use controller::run;
