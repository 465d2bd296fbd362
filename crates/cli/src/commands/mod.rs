//! The commands, one file each.

mod crds;

use anyhow::Result;
use clap::Subcommand;

/// What writ can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print every custom resource definition as YAML.
    Crds(crds::Arguments),
}

/// Runs one command.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Crds(arguments) => crds::run(&arguments),
    }
}
