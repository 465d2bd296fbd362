//! Writes, reads and deletes the objects of works.
//!
//! `delivery → pass (wave after wave) → strategy per object → outcome per manifest`

mod conflicts;
mod create;
pub mod delete;
mod ignored_fields;
mod managed_fields;
mod merge_fallback;
pub mod pass;
pub mod prune;
mod read;
mod recreate;
mod skipped;
mod strategies;

pub use conflicts::ConflictCheck;
