//! `writ completion`

use std::{io, process::ExitCode};

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
    #[expect(
        clippy::unnecessary_wraps,
        reason = "every command ends with an exit code or an error"
    )]
    pub fn run(self) -> Result<ExitCode> {
        clap_complete::generate(
            self.shell,
            &mut crate::Arguments::command(),
            "writ",
            &mut io::stdout(),
        );
        Ok(ExitCode::SUCCESS)
    }
}
