//! The gate: a work with an executor is written only if the executor may hold every object through its whole life.
//!
//! `manifests → evaluate (RBAC index, answers) ⇄ SubjectAccessReviews → reread what it rests on → verdict`
//!
//! * The API server decides, by SubjectAccessReview: first for all names of a kind in a namespace, for single names
//!   only where that is not granted. Equal questions are asked once, and answers are kept until RBAC changes.
//! * The RBAC objects are watched. They decide which questions can be answered with yes at all, so a refusal costs no
//!   request; a yes needs both. A change drops the answers of every executor that it can affect, and its works are judged
//!   again at once.
//! * A revision is judged by answers to questions that were asked after it arrived: a permission that was revoked before
//!   is not used, however late the watches show that.
//! * All or nothing: one refused manifest refuses the revision, unless an option says otherwise.
//! * Writing RBAC may not grant more than the executor holds, and no executor may touch the agent's own objects.
//!
//! See `docs/design/gate.md` and `docs/design/executor-answers.md`.

mod access_review;
mod agent_objects;
mod answers;
mod check;
mod escalation;
mod evaluate;
mod lookup;
mod model;
mod rbac_index;
mod rbac_watch;
mod reread;
#[cfg(test)]
mod tests;

pub use check::{Gate, LISTED_WITHIN};
