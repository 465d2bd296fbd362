//! `writ version`

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::output::{self, Format};

/// Print the version.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ version -o json")]
pub struct Version {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Version {
    pub fn run(self) -> Result<ExitCode> {
        let version = env!("CARGO_PKG_VERSION");
        let answer = serde_json::json!({"name": "writ", "version": version});
        output::value(self.output, &answer, || match self.output {
            Format::Name => version.to_owned(),
            _ => format!("writ {version}"),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
