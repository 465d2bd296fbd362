//! `writ completion`

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ completion bash > /etc/bash_completion.d/writ")]
pub struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    pub fn run(self) -> Result<ExitCode> {
        // Into memory first: the generator panics if its output is closed.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Arguments::command(), "writ", &mut script);
        io::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
