//! Notices drift: objects on the managed cluster that changed since they were written, by watches on their metadata.
//!
//! `metadata watches → index (which work, and can it matter?) → queue`
//!
//! * [`DriftIndex`] knows which objects matter to which work, and what was last seen of each. No content is kept.
//! * [`DriftWatches`] keeps one watch per kind, as wide as needed. Where the agent may not watch a whole kind it watches
//!   namespaces one by one, and polls what it may not watch there either; the works report that.
//! * An object that is changed again and again is corrected with growing pauses.

mod index;
mod last_seen;
#[cfg(test)]
mod tests;
mod uid;
mod unwatched;
mod watch_scope;
mod watch_stream;
mod watches;

pub use index::{DriftIndex, Need};
pub use last_seen::{LastSeen, resource_version};
pub use watches::{DriftWatches, MAX_NAMESPACES, MIN_POLL, POLL, UnwatchedObjects, UnwatchedReason};
