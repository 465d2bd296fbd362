//! The kit that every controller of writ is made of.
//!
//! A [`Watch`] feeds a [`Cache`], which tells its subscribers of each [`cache::Change`]. A [`Controller`] turns changes into
//! keys of its [`Queue`], waits until its caches have shown a first list, and reconciles each key: observe from caches, plan
//! without I/O, [`write`] what differs. A reconcile answers with [`Next`], or with an [`Error`] that is logged, reported as
//! an event and retried with growing pauses. Only success and new input reset these pauses.
//!
//! ```text
//! API server ──watch──▶ Cache ──Change──▶ keys ──▶ Queue ──key──▶ reconcile ──write──▶ API server
//!                         ▲                          ▲                │ │
//!                         └───── record own write ───┼────────────────┘ │
//!                                                    └── Next, pauses ──┘
//! ```
//!
//! Nothing here knows a kind of writ.

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
pub mod queue;
pub mod redact;
pub mod renewal;
pub mod rest_mapper;
pub mod write;

pub use cache::{Cache, Watch, compressed, tolerant, watch};
pub use controller::Controller;
pub use drift::DriftBackoff;
pub use error::Error;
pub use name::{Name, ObjectId};
pub use queue::{Next, Queue};
pub use rest_mapper::{RestMapper, ServedKind};
