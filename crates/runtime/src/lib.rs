//! What every controller of writ shares: lease, conditions, apply, events, health, metrics, webhook TLS.
//!
//! A controller is a future that runs until its process shuts down. [`supervise`] starts the ones that were
//! asked for, [`health`] tells when all their watches are initialised, [`condition`] and [`apply`] write only
//! differences.

pub mod apply;
pub mod backoff;
pub mod cel;
pub mod client;
pub mod clock;
pub mod condition;
pub mod crds;
pub mod error;
pub mod events;
pub mod guarded;
pub mod health;
pub mod lease;
pub mod logs;
pub mod metrics;
pub mod packed;
pub mod path;
pub mod quantity;
pub mod queue;
pub mod schedule;
pub mod segment;
pub mod supervise;
pub mod token;
pub mod watching;
pub mod webhook;
pub mod whoami;
pub mod yaml;

pub use error::Error;
