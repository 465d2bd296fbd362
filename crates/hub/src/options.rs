//! How a hub is started. The command line fills this in; tests write it down.

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
