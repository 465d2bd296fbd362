//! How an agent is started. The command line fills this in; tests write it down.

use std::collections::BTreeMap;

use kube::config::Cluster;
use writ_controller::clock::Clock;

pub use crate::work::options::{Authorizers, ExecutorGranularity, NilExecutor, WorkOptions};

/// The options of `writ agent`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this cluster on the hub, which is also its namespace there.
    pub cluster_name: String,
    /// The namespace on the managed cluster that is the agent's own.
    pub agent_namespace: String,
    /// The address and the CA of the hub, for those on this cluster whom the agent gets a credential.
    pub hub_cluster: Option<Cluster>,
    /// The controllers to run, by folder name; none means all.
    pub controllers: Vec<String>,
    /// How accounts and their tokens are kept.
    pub tokens: TokenOptions,
    /// How works are delivered.
    pub work: WorkOptions,
    /// `--cluster-label`: labels that the agent sets on its own ManagedCluster, where it was given the right.
    pub cluster_labels: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster_name: String::new(),
            agent_namespace: "open-cluster-management-agent".into(),
            hub_cluster: None,
            controllers: Vec::new(),
            tokens: TokenOptions::default(),
            work: WorkOptions::default(),
            cluster_labels: BTreeMap::new(),
        }
    }
}

/// How accounts and their tokens are kept.
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// ServiceAccounts of the agent's namespace that belong to the system: never managed, never adopted.
    pub reserved: Vec<String>,
    /// The CA of the managed cluster, in PEM, where the ConfigMap `kube-root-ca.crt` does not tell it.
    pub cluster_ca: Option<String>,
    /// Where others reach the managed cluster's API server; for the optional keys of the Secret.
    pub api_server_url: Option<String>,
    /// How many accounts are looked at side by side.
    pub concurrency: usize,
    /// What time it is.
    pub clock: Clock,
}

impl Default for TokenOptions {
    fn default() -> Self {
        let reserved = [
            "default",
            "klusterlet",
            "klusterlet-registration-sa",
            "klusterlet-work-sa",
            "managed-serviceaccount",
            "writ-agent",
        ];
        Self {
            reserved: reserved.map(Into::into).into(),
            cluster_ca: None,
            api_server_url: None,
            concurrency: 16,
            clock: Clock::System,
        }
    }
}
