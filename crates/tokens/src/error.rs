//! The errors of this crate.

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such account.
    #[error("there is no ManagedServiceAccount {name} in namespace {cluster} of the hub")]
    NoAccount {
        /// The cluster.
        cluster: String,
        /// The account.
        name: String,
    },
    /// The account has no token, yet or any more.
    #[error("the account {cluster}/{name} has no token: {why}")]
    NoToken {
        /// The cluster.
        cluster: String,
        /// The account.
        name: String,
        /// The reason in its status.
        why: String,
    },
    /// The ManagedCluster does not name the address of its API server.
    #[error("the hub does not know the address of cluster {0}: its ManagedCluster names no client config")]
    NoAddress(String),
    /// The hub refused or could not be reached.
    #[error("{what}: {source}")]
    Request {
        /// What was tried.
        what: String,
        /// The error of the client or the server.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    pub(crate) fn request(what: String, source: kube::Error) -> Self {
        Self::Request {
            what,
            source: Box::new(source),
        }
    }
}
