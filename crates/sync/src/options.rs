//! How syncs are run.

use std::{net::SocketAddr, path::PathBuf};

/// The role of a RootSync that names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultRole {
    /// The ClusterRole `cluster-admin`, as with Config Sync.
    #[default]
    ClusterAdmin,
    /// No role.
    None,
}

/// Where reconcilers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// As tasks of this process.
    #[default]
    Task,
    /// Each in a Deployment of its own.
    Pod,
}

/// How syncs are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The role of a RootSync that names none.
    pub default_role: DefaultRole,
    /// Where reconcilers run.
    pub isolation: Isolation,
    /// Whether the editor of a sync needs the rights to `bind` its roles and to `get` its Secrets.
    pub require_bind: bool,
    /// The address of the admission webhook for the API server, outside of a cluster. Inside, it is the Service `writ-sync`.
    pub webhook_url: Option<String>,
    /// The address at which the admission webhook listens.
    pub webhook_listen: SocketAddr,
    /// A folder with the certificates of the webhook, as cert-manager writes them. Without it, the webhook makes its own.
    pub webhook_certs: Option<PathBuf>,
    /// The folder of clones.
    pub cache: PathBuf,
    /// Whether RepoSyncs may read repositories on this machine. Tenants could then read everything that this process can.
    pub tenants_read_local: bool,
    /// The identity of this process in the leader election; `None` for a process that acts alone.
    pub leader_election: Option<String>,
    /// The image of the Deployments, for [`Isolation::Pod`].
    pub image: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_role: DefaultRole::default(),
            isolation: Isolation::default(),
            require_bind: false,
            webhook_url: None,
            webhook_listen: SocketAddr::from(([0, 0, 0, 0], 9443)),
            webhook_certs: None,
            cache: std::env::temp_dir().join("writ-sync"),
            tenants_read_local: false,
            leader_election: None,
            image: concat!("ghcr.io/writ-dev/writ:", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}
