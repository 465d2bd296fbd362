//! The kit that every controller of writ is made of: cache, queue, run loop, writes, drift, renewal, conditions.

pub mod backoff;
pub mod clock;
pub mod condition;
pub mod error;
pub mod events;
pub mod health;
pub mod metrics;
pub mod packed;
pub mod queue;
pub mod rest_mapper;
pub mod schedule;
pub mod tolerant;
pub mod watching;
pub mod write;

pub use error::Error;
pub use rest_mapper::{RestMapper, ServedKind};
