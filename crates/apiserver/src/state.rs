//! What one server is made of.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::auth::{Authorizer, Issuer, StaticTokens, Ways};
use crate::clock::Clock;
use crate::controllers::Work;
use crate::http::Slow;
use crate::registry::Registry;
use crate::serve::Authority;
use crate::store::Store;

/// The parts of one server, shared by all its requests.
pub(crate) struct State {
    pub store: Store,
    pub registry: Arc<Registry>,
    pub clock: Clock,
    pub authorizer: Arc<Authorizer>,
    pub tokens: StaticTokens,
    pub ways: Ways,
    pub issuer: Issuer,
    pub authority: Authority,
    pub work: Arc<Work>,
    pub stop: CancellationToken,
    pub admission: Admission,
    /// The uid that the server has as a user of itself.
    pub own_uid: String,
    pub requests: AtomicU64,
    pub watches: AtomicU64,
    pub slow: Slow,
    /// Where it listens, once it does.
    pub address: OnceLock<SocketAddr>,
}

impl State {
    /// The address of the API, if there is a socket.
    pub fn url(&self) -> Option<String> {
        self.address.get().map(|address| format!("https://{address}"))
    }
}
