//! `writ hub`

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use writ_hub::options::{
    AccountOptions, AdmissionOptions, AgentRights, Guards, KeyGrants, RegistrationDriver,
};
use writ_hub::options::{ExecutorAuthorization, NilExecutor};
use writ_process::{
    client,
    webhook::{self, Source, Target},
};

use crate::{
    connect::Connection,
    daemon::{self, DaemonFlags},
    flags::WebhookFlags,
};

/// Run the controllers and the admission of a hub.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ hub --kubeconfig hub.kubeconfig --webhook-url https://10.0.0.5:9443"
)]
pub struct Hub {
    #[command(flatten)]
    connection: Connection,
    /// The controllers to run; default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// Act alone, without asking whether another replica acts already.
    #[arg(long)]
    no_leader_election: bool,
    /// Whether admission webhooks are served.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    webhooks: Switch,
    #[command(flatten)]
    webhook: WebhookFlags,
    /// What admission requires for a work without an executor: allow (nothing) or check (execute-as for the agent).
    #[arg(long, default_value = "allow")]
    nil_executor: NilExecutor,
    /// What lets a user name an executor: execute-as, binding or either.
    #[arg(long, default_value = "execute-as")]
    executor_authorization: ExecutorAuthorization,
    /// The largest sum of the sizes of a work's manifests, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 512_000)]
    manifest_limit: usize,
    /// Who evaluates the namespace selectors of ClusterPermissions.
    #[arg(long, value_enum, default_value_t = NamespaceSelector::Auto)]
    namespace_selector: NamespaceSelector,
    /// The executor of the works of ClusterPermissions, for agents that deny works without one.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    permission_executor: Option<String>,
    /// Which clusters get the add-on `managed-serviceaccount`: all, or only those where it is created by hand.
    #[arg(long, value_enum, default_value_t = AccountAddon::All)]
    account_addon: AccountAddon,
    /// The image of the add-on's agent, for clusters on which the agent of writ does not keep accounts.
    #[arg(long, value_name = "IMAGE", default_value_t = AccountOptions::default().agent_image)]
    account_agent_image: String,
    /// What the agent of an accepted cluster may do: minimal, or ocm for what upstream's agents expect besides.
    #[arg(long, default_value = "minimal", value_parser = agent_rights)]
    agent_rights: AgentRights,
    /// How agents prove who they are: csr, or token on hubs that sign no certificates.
    #[arg(long, default_value = "csr", value_parser = registration_driver)]
    registration_driver: RegistrationDriver,
    /// Ask for the rights on keys for sets with the default key too.
    #[arg(long)]
    guard_default_key: bool,
    /// Ask for join for label changes that move a cluster between sets with a LabelSelector too.
    #[arg(long)]
    guard_selector_sets: bool,
    /// Which grants on managedclustersets/exclusiveKey count: any, or pair for `key:set` only.
    #[arg(long, default_value = "any", value_parser = key_grants)]
    exclusive_key_grants: KeyGrants,
    #[command(flatten)]
    process: DaemonFlags,
}

fn agent_rights(text: &str) -> Result<AgentRights, String> {
    text.parse()
}

fn registration_driver(text: &str) -> Result<RegistrationDriver, String> {
    text.parse()
}

fn key_grants(text: &str) -> Result<KeyGrants, String> {
    text.parse()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AccountAddon {
    /// Every accepted cluster.
    All,
    /// Clusters where a ManagedClusterAddOn `managed-serviceaccount` was created by hand.
    Manual,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NamespaceSelector {
    /// The agent where it says that it can, the hub elsewhere.
    Auto,
    /// The agent, over the namespaces of the managed cluster.
    Agent,
    /// The hub, over its own namespaces, as upstream does.
    Hub,
}

impl Hub {
    pub async fn run(self) -> Result<ExitCode> {
        let config = self.connection.config().await?;
        // The address of this machine is needed only if it serves webhooks.
        let url = match self.webhooks {
            Switch::On => self.webhook.address(&config)?,
            Switch::Off => None,
        };
        let client = client::connect(config).context("set up a client of the hub")?;
        let admission = AdmissionOptions::default();
        let options = writ_hub::Options {
            controllers: self.controllers,
            leader_election: (!self.no_leader_election).then(daemon::identity),
            admission: AdmissionOptions {
                webhooks: self.webhooks == Switch::On,
                server: webhook::Options {
                    listen: self.webhook.listen,
                    target: match url {
                        None if self.webhook.listen.port() != 0 => admission.server.target,
                        // A port picked by the system is not the port of the Service.
                        url => Target::Url(url),
                    },
                    source: self.webhook.certs.map_or(admission.server.source, Source::Folder),
                    ..admission.server
                },
                nil_executor: self.nil_executor,
                executor_authorization: self.executor_authorization,
                manifest_limit: self.manifest_limit,
            },
            namespace_selector: match self.namespace_selector {
                NamespaceSelector::Auto => writ_hub::options::NamespaceSelector::Auto,
                NamespaceSelector::Agent => writ_hub::options::NamespaceSelector::Agent,
                NamespaceSelector::Hub => writ_hub::options::NamespaceSelector::Hub,
            },
            permission_executor: self.permission_executor,
            managed_service_account: AccountOptions {
                install_everywhere: self.account_addon == AccountAddon::All,
                agent_image: self.account_agent_image,
                ..AccountOptions::default()
            },
            guards: Guards {
                default_key: self.guard_default_key,
                selector_sets: self.guard_selector_sets,
                key_grants: self.exclusive_key_grants,
                ..Guards::default()
            },
            agent_rights: self.agent_rights,
            registration_driver: self.registration_driver,
        };
        let (health, shutdown) = daemon::start(&self.process).await?;
        let client = health.counted("hub", client);
        writ_hub::run(client, options, health, shutdown).await?;
        Ok(ExitCode::SUCCESS)
    }
}
