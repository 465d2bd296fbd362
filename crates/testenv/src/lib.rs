//! A real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager) for tests.
//!
//! [`Assets`] finds the binaries, [`ControlPlane`] starts them in a folder of its own and waits until the API server is
//! ready, [`harness`] runs tests that need one and reports them as ignored where there is none.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let plane = writ_testenv::ControlPlane::start(writ_testenv::Options::default()).await?;
//! let admin = plane.client()?;
//! let alice = plane.client_as("alice", &["team-a"])?;
//! # Ok(()) }
//! ```
//!
//! No process outlives the one that started it, not even when that one is killed: see [`process`].

pub mod assets;
mod etcd;
#[cfg(feature = "git_http")]
pub mod git_http;
pub mod harness;
mod pki;
mod plane;
pub mod process;

pub use assets::{Assets, Missing, pinned_version};
pub use plane::{ControlPlane, Options};
