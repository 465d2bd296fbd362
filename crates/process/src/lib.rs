//! What a process needs besides its controllers: clients, health endpoints, logs, lease, supervision, admission webhooks.

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
