//! The kit that every controller of writ is made of: cache, queue, run loop, writes, drift, renewal, conditions.

pub mod backoff;
pub mod cache;
pub mod clock;
pub mod condition;
pub mod controller;
pub mod drift;
pub mod error;
pub mod events;
pub mod health;
pub mod metrics;
pub mod name;
pub mod packed {
    //! Older names.
    pub use crate::compressed::{compress as pack, decompress as unpack};
}
pub mod queue;
pub mod redact;
pub mod renewal;
pub mod rest_mapper;
pub mod schedule;
pub mod watching;
pub mod write;

pub use cache::{Cache, Watch, compressed, tolerant, watch};
pub use controller::Controller;
pub use drift::DriftBackoff;
pub use error::Error;
pub use name::{Name, ObjectId};
pub use queue::{Next, Queue};
pub use rest_mapper::{RestMapper, ServedKind};
