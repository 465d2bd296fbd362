//! How a hub is started. The command line fills this in; tests write it down.

use writ_runtime::clock::Clock;

pub use crate::admission::AdmissionOptions;

/// The options of `writ hub`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The controllers to run, by folder name; none means all.
    pub controllers: Vec<String>,
    /// How admission works.
    pub admission: AdmissionOptions,
    /// Who this process is in the election of the one that acts; `None` means it acts alone.
    pub leader_election: Option<String>,
    /// Who evaluates the namespace selectors of ClusterPermissions.
    pub namespace_selector: NamespaceSelector,
    /// `namespace/name` of the ServiceAccount that is the executor of the works of ClusterPermissions.
    pub permission_executor: Option<String>,
    /// How accounts on managed clusters are kept.
    pub managed_service_account: AccountOptions,
}

/// Who evaluates the namespace selectors of ClusterPermissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceSelector {
    /// The agent where it says that it can, the hub elsewhere.
    #[default]
    Auto,
    /// The agent, over the namespaces of the managed cluster.
    Agent,
    /// The hub, over its own namespaces, as upstream does.
    Hub,
}

/// How accounts on managed clusters are kept.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    /// Give every accepted cluster the add-on `managed-serviceaccount`; otherwise somebody makes each
    /// ManagedClusterAddOn by hand.
    pub install_everywhere: bool,
    /// The image of the add-on's agent, for clusters on which our own agent does not run.
    pub agent_image: String,
    /// What time it is.
    pub clock: Clock,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self {
            install_everywhere: true,
            agent_image: "ghcr.io/writ-dev/writ:latest".into(),
            clock: Clock::System,
        }
    }
}
