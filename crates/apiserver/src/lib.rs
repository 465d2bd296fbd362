//! A small Kubernetes API server in memory: a fleet in one process.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::api::{Api, ListParams};
//!
//! let server = writ_apiserver::Server::builder().port(0).start().await?;
//! std::fs::write("kubeconfig", server.kubeconfig()?)?;
//! let namespaces: Api<Namespace> = Api::all(server.client());
//! assert_eq!(namespaces.list(&ListParams::default()).await?.items.len(), 4);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! It stores, watches, validates, admits and authorizes as kube-apiserver does; it runs nothing: there is no kubelet and no scheduler.
//! The README of this crate lists what it serves and where it differs from the real one.

pub mod admission;
mod api;
mod auth;
mod bootstrap;
pub mod builtin;
#[cfg(test)]
mod bytes_tests;
mod clock;
mod controllers;
mod go_duration;
mod go_numbers;
mod go_url;
mod http;
mod jsonpath;
mod openapi;
pub mod patch;
mod pki;
mod quantity;
mod registry;
mod resources;
pub mod schema;
pub mod selector;
mod serve;
mod server;
pub mod ssa;
mod state;
mod status;
mod store;

pub use auth::{Recorder, User};
pub use bootstrap::Definitions;
pub use clock::Clock;
pub use server::{Builder, Options, Server, StartError, serve};
pub use store::OpenError;
