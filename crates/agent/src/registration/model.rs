//! The types of registration: how an agent joins, and what it knows about its cluster.

use std::collections::{BTreeMap, BTreeSet};

use kube::config::Kubeconfig;
use writ_api::{
    NumberOrText,
    cluster::managed_cluster::{ClientConfig, ReportedClaim},
};
use writ_controller::clock::Clock;

use super::store::Store;

/// How agents prove their identity to the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// A client certificate, asked for with a CertificateSigningRequest.
    #[default]
    Csr,
    /// A token of the cluster's own ServiceAccount, on hubs that sign no certificates. The bootstrap identity
    /// must be this account's, or one with the right to ask for its tokens: a shared one never is.
    Token,
}

/// How to join a hub.
#[derive(Clone)]
pub struct Joining {
    /// The name of this cluster on the hub.
    pub cluster: String,
    /// The bootstrap identity, with the address of the hub.
    pub bootstrap: Kubeconfig,
    /// Where the agent's own identity is kept.
    pub store: Store,
    /// The addresses of this cluster's API server, for the hub.
    pub client_configs: Vec<ClientConfig>,
    /// How agents prove their identity to the hub.
    pub driver: Driver,
    /// The clock.
    pub clock: Clock,
}

/// What the agent knows about its cluster.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Why the API server of the cluster counts as unavailable, if it does.
    pub unhealthy: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The sums over its nodes: capacity and allocatable.
    pub resources: Resources,
    /// Its claims.
    pub claims: Vec<ReportedClaim>,
    /// Whether the configured labels of the cluster are set, or why not; `None` if there are none.
    pub labels: Option<Result<(), String>>,
    /// Whether the namespaces that the sets of the cluster ask for exist, or why not.
    pub namespaces: BTreeMap<String, Result<(), String>>,
}

/// The changes to the namespaces that sets ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceChanges {
    /// To be created, or to be marked as asked for.
    pub apply: BTreeSet<String>,
    /// No set asks for them any more: they stay, and the mark says so.
    pub release: BTreeSet<String>,
}

/// Sums over the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// What all nodes have.
    pub capacity: BTreeMap<String, NumberOrText>,
    /// What the nodes that take new pods have left for pods.
    pub allocatable: BTreeMap<String, NumberOrText>,
}
