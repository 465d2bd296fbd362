//! The commands, one file each.

mod accept;
mod access;
mod agent;
mod apiserver;
mod completion;
mod crds;
mod deny;
mod describe;
mod detach;
mod get;
mod grant;
mod hub;
mod install;
mod join;
mod kubeconfig;
mod placement;
mod reference;
mod sync;
mod token;
mod tour;
mod up;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use agent::Agent;

/// What writ can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a hub and managed clusters on this machine.
    Up(up::Up),
    /// Walk through what writ does, with a proof at every step.
    Tour(tour::Tour),
    /// May this subject do that?
    #[command(name = "can-i")]
    CanI(access::CanI),
    /// Who may do that?
    WhoCan(access::WhoCan),
    /// Why may, or may not, this subject do that?
    Why(access::Why),
    /// List clusters, permissions, works, accounts, sets or syncs.
    Get(get::Get),
    /// Print the tokens that the hub holds for accounts on managed clusters, or what clusters join with.
    Token(token::Token),
    /// Print a kubeconfig for a managed cluster that asks the hub for a token whenever it needs one.
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Show one object, what each cluster says about it, and what to do next.
    Describe(describe::Describe),
    /// Grant a role on managed clusters.
    Grant(grant::Grant),
    /// Take a role on managed clusters away.
    Revoke(grant::Revoke),
    /// Print or apply the manifests of a hub, an agent or the syncs.
    Install(install::Install),
    /// Join a hub: ask for an identity, and wait until it is accepted.
    Join(Box<join::Join>),
    /// Accept a cluster that wants to join.
    Accept(accept::Accept),
    /// Take every right away from the agent of a cluster.
    Deny(deny::Deny),
    /// Let a cluster leave the hub.
    Detach(detach::Detach),
    /// Ask about placements.
    Placement(placement::Placement),
    /// Run the controllers and the admission of a hub.
    Hub(Box<hub::Hub>),
    /// Run the agent of a managed cluster.
    Agent(Box<Agent>),
    /// Run RootSyncs and RepoSyncs.
    Sync(Box<sync::Sync>),
    /// Run an embedded Kubernetes API server.
    Apiserver(apiserver::Apiserver),
    /// Print every custom resource definition as YAML.
    Crds(crds::Crds),
    /// Print the completion script of a shell.
    Completion(completion::Completion),
    /// Write the references of the command line and of the API.
    #[command(hide = true)]
    Reference(reference::Reference),
    /// Print the version.
    Version(version::Version),
}

/// Runs one command.
pub async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up(command) => command.run().await,
        Command::Tour(command) => command.run().await,
        Command::CanI(command) => command.run().await,
        Command::WhoCan(command) => command.run().await,
        Command::Why(command) => command.run().await,
        Command::Get(command) => command.run().await,
        Command::Describe(command) => command.run().await,
        Command::Grant(command) => command.run().await,
        Command::Revoke(command) => command.run().await,
        Command::Install(command) => command.run().await,
        Command::Join(command) => command.run().await,
        Command::Accept(command) => command.run().await,
        Command::Deny(command) => command.run().await,
        Command::Detach(command) => command.run().await,
        Command::Placement(command) => command.run().await,
        Command::Apiserver(command) => command.run().await,
        Command::Token(command) => command.run().await,
        Command::Kubeconfig(command) => command.run().await,
        Command::Hub(command) => command.run().await,
        Command::Agent(command) => Box::pin(command.run()).await,
        Command::Sync(command) => command.run().await,
        Command::Crds(command) => command.run(),
        Command::Completion(command) => command.run(),
        Command::Reference(command) => command.run(),
        Command::Version(command) => command.run(),
    }
}
