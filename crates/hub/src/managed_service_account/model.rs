//! The types of accounts on the hub: what is observed, what is planned, and the names that both use.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use writ_api::{authentication::ManagedServiceAccount, cluster::managed_cluster::ClientConfig};
use writ_controller::Name;

/// The name of the add-on.
pub const ADDON: &str = "managed-serviceaccount";

/// The ManifestWork that delivers the add-on.
pub const ADDON_WORK: &str = "addon-managed-serviceaccount-deploy-0";

/// The ServiceAccount of the add-on's agent in its cluster's namespace, where the token driver is used. The name is
/// upstream's.
pub const ADDON_ACCOUNT: &str = "managed-serviceaccount-agent";

/// The Deployment that the ManifestWork delivers.
pub const ADDON_DEPLOYMENT: &str = "managed-serviceaccount-addon-agent";

/// The name of Role and RoleBinding in every cluster namespace.
pub use writ_api::authentication::AGENT_ROLE;

/// The admission policy on Secrets that agents write.
pub const POLICY: &str = "managed-serviceaccount-secrets.writ.dev";

/// The JSON pointers at which an account that another object stands behind holds nothing else: what a parent or owner no
/// longer says, its account must not say either.
pub const EXACT_ACCOUNT: [&str; 4] = [
    "/spec",
    "/metadata/annotations/authentication.writ.dev~1adopt",
    "/metadata/annotations/authentication.writ.dev~1rotation",
    "/metadata/annotations/authentication.writ.dev~1secret-keys",
];

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The admission policy.
    Policy,
    /// A cluster: its add-on and its agent's rights.
    Cluster(Arc<str>),
    /// A request for the add-on's credential.
    Request(Arc<str>),
    /// An account of the older group.
    Owner(Name),
    /// An account.
    Account(Name),
}

/// The accounts of one name, by namespace.
pub type Namesakes = BTreeMap<String, Arc<ManagedServiceAccount>>;

/// Where an account is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the namespace of a cluster: its agent does the rest.
    Cluster,
    /// In a namespace with valid bindings: these are the clusters of the bound sets.
    Sets(BTreeSet<String>),
    /// In any other namespace.
    Nowhere,
}

/// What an account in a cluster-set namespace needs.
#[derive(Debug, Default)]
pub struct Family {
    /// Children to create or bring into shape.
    pub wanted: Vec<ManagedServiceAccount>,
    /// Children whose cluster has left, or whose account is none of a cluster set any more.
    pub surplus: Vec<Arc<ManagedServiceAccount>>,
    /// Clusters where the name is taken, and by what.
    pub taken: BTreeMap<String, String>,
    /// Clusters whose child could not be written, and why.
    pub unwritten: BTreeMap<String, String>,
}

/// A watched Secret, without its secret data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSecret {
    /// Its digest.
    pub digest: String,
    /// Its version.
    pub version: String,
    /// Its uid.
    pub uid: String,
    /// It was made for an account and has lost its owner reference, so that it would outlive the account.
    pub orphaned: bool,
}

/// How the add-on's agent comes to its credential for the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By a certificate.
    Certificate {
        /// An agent of the cluster has asked for it.
        requested: bool,
    },
    /// By tokens of an account on the hub: its uid, or why it has none.
    Token(Result<String, String>),
}

/// What the agent's Role grants.
#[derive(Debug, Default)]
pub struct Granted {
    /// The Secrets that the agent may write, with the uids of their accounts.
    pub secrets: BTreeMap<String, String>,
    /// Whether it may create them: only while the policy says which.
    pub create: bool,
    /// The address of the cluster's API server, for consumers of tokens.
    pub server: Option<ClientConfig>,
}
