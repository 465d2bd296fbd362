//! How an agent is started. The command line fills this in; tests write it down.

/// The options of `writ agent`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this cluster on the hub, which is also its namespace there.
    pub cluster_name: String,
    /// The namespace on the managed cluster that is the agent's own.
    pub agent_namespace: String,
    /// The controllers to run, by folder name; none means all.
    pub controllers: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster_name: String::new(),
            agent_namespace: "open-cluster-management-agent".into(),
            controllers: Vec::new(),
        }
    }
}
