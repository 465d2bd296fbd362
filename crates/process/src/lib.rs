//! What a process of writ needs besides its controllers.
//!
//! ```text
//! client::connect ── clients with timeouts ──▶ controllers ◀── supervise::run (restarts with growing pauses)
//!                                                  ▲                 ▲
//! lease::Candidate ── runs them on one replica only ┘                 └─ supervise::shutdown_on_signal
//! webhook::serve ── certificates, TLS server, webhook configurations; on every replica
//! health::serve ── /livez, /readyz, /metrics of `writ_controller::health::Health`
//! ```
//!
//! * [`admission`]: the framework of admission webhooks: one table, one handler type, one decision.
//! * [`client`]: clients of API servers with a timeout on every request; [`whoami`] and [`token`] are single requests.
//! * [`crds`]: compares the installed definitions with ours, and names the features that do not work because of a gap.
//! * [`lease`]: leader election on a Lease, by compare-and-swap and a monotonic clock.
//! * [`logs`]: the log filter, with the lines that must never be logged.
//! * [`private`]: files and folders with keys or tokens, readable by their owner only.
//! * [`webhook`]: serves admission webhooks, and keeps certificates and configurations current.
//!
//! Nothing here knows a kind of writ. What a controller is made of is in `writ-controller`.

pub mod admission;
pub mod client;
pub mod crds;
pub mod health;
pub mod lease;
pub mod logs;
pub mod private;
pub mod supervise;
pub mod token;
pub mod webhook;
pub mod whoami;
