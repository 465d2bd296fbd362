//! How a hub is started. The command line fills this in; tests write it down.

use std::str::FromStr;

use writ_controller::clock::Clock;

mod admission;

pub use admission::{AdmissionOptions, ExecutorAuthorization, NilExecutor};

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
    /// What admission asks about clusters and sets.
    pub guards: Guards,
    /// The rights that the agent of an accepted cluster gets.
    pub agent_rights: AgentRights,
    /// How agents prove who they are.
    pub registration_driver: RegistrationDriver,
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
    /// Give every accepted cluster the add-on `managed-serviceaccount`; otherwise each
    /// ManagedClusterAddOn is made by hand.
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

/// What admission asks about clusters and sets, beyond what upstream asks.
#[derive(Clone, Debug)]
pub struct Guards {
    /// `--guard-default-key`: sets with the default key ask for the rights that sets with their own key ask for.
    pub default_key: bool,
    /// `--guard-selector-sets`: label changes that move a cluster between sets with a selector take `join` too.
    pub selector_sets: bool,
    /// `--exclusive-key-grants`: which grants allow to create a set.
    pub key_grants: KeyGrants,
    /// Clusters without the default label are put into the set `default`, as upstream does.
    pub default_set: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            default_key: false,
            selector_sets: false,
            key_grants: KeyGrants::Any,
            default_set: true,
        }
    }
}

/// Which grants on `managedclustersets/exclusiveKey` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyGrants {
    /// Grants on the key, and grants on the pair `key:set`.
    #[default]
    Any,
    /// Grants on the pair only: two grants never combine into a third set.
    Pair,
}

/// The rights that the agent of an accepted cluster gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentRights {
    /// What writ's agent needs.
    #[default]
    Minimal,
    /// What upstream's agents expect besides: `update` on their own ManagedCluster, all certificate requests.
    Ocm,
}

/// How agents prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationDriver {
    /// A client certificate, asked for with a CertificateSigningRequest.
    #[default]
    Csr,
    /// A token of a ServiceAccount in the namespace of the cluster, for hubs that sign no certificates.
    Token,
}

impl FromStr for KeyGrants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "pair" => Ok(Self::Pair),
            _ => Err(format!("{text:?} is not one of any, pair")),
        }
    }
}

impl FromStr for AgentRights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "minimal" => Ok(Self::Minimal),
            "ocm" => Ok(Self::Ocm),
            _ => Err(format!("{text:?} is not one of minimal, ocm")),
        }
    }
}

impl FromStr for RegistrationDriver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "csr" => Ok(Self::Csr),
            "token" => Ok(Self::Token),
            _ => Err(format!("{text:?} is not one of csr, token")),
        }
    }
}
