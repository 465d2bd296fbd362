//! Admission webhooks: one table per process, one handler per row, one way to answer.
//!
//! A process lists its webhooks in a table of [`Webhook`]s. [`configurations`] turns the table into the webhook
//! configurations that the API server reads, [`router`] into the routes that it calls, so the two cannot differ.
//!
//! A handler turns a [`Request`] into a [`Decision`]: denied, or allowed if the requester holds certain rights. It does
//! not ask for those rights itself: the framework asks the API server by SubjectAccessReview, as the requester. A
//! request that cannot be checked is denied: an error is never an allow.
//!
//! Data flow: AdmissionReview → `request` → handler → [`Decision`] → [`Authorizer`] → AdmissionReview.

mod authorizer;
mod model;
mod request;
mod table;
#[cfg(test)]
mod tests;

pub use authorizer::{Authorizer, SubjectAccessReviews};
pub use model::{Access, Decision, Operation, Request, Requirement, Rule, SPEC_CHANGES, Webhook};
pub use request::{OldAndNew, parse_spec, patch_between, spec_of, spec_unchanged};
pub use table::{configurations, router};
