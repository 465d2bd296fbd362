//! The programs of writ: `writ` with every command, and `writ-agent` with the command `agent` alone. An agent runs in
//! every cluster, and the pages of its program are most of the memory that it occupies.

mod access_question;
mod allocator;
mod cluster_choice;
mod commands;
mod connect;
mod daemon;
mod describe;
mod example;
mod flags;
mod grant;
mod kinds;
mod output;
mod reference;
mod terminal;
mod tour;

use std::{
    io::{IsTerminal as _, Write as _},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::ExitCode,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser};
use writ_process::logs;

use commands::{Agent, Command};

/// Agents run for months and must stay small: this allocator returns memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Who may do what on which cluster? A hub holds the intent, an agent in every cluster makes it true there.
#[derive(Debug, Parser)]
#[command(name = "writ", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The agent of a managed cluster: the same as `writ agent`.
#[derive(Debug, Parser)]
#[command(
    name = "writ-agent",
    version,
    after_help = "Example:\n  writ-agent --cluster-name cluster1 --bootstrap-kubeconfig bootstrap.kubeconfig"
)]
struct AgentAlone {
    #[command(flatten)]
    agent: Agent,
}

/// The exit code after a closed pipe, as if SIGPIPE had ended the process.
const CLOSED_PIPE: u8 = 141;
/// The exit code of an error.
const ERROR: u8 = 2;
/// The exit code once printing has failed; 0 before.
static PRINT_FAILED: AtomicU8 = AtomicU8::new(0);

/// Silences panics of failed prints: a closed pipe (`writ get clusters | head -1`) is no fault, and a full disk needs no
/// backtrace. The panic still unwinds, so that folders with keys are removed.
fn quiet_about_closed_pipes() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if !text.starts_with("failed printing to std") {
            usual(info);
        } else if text.contains("Broken pipe") {
            PRINT_FAILED.store(CLOSED_PIPE, Ordering::Relaxed);
        } else if PRINT_FAILED.swap(ERROR, Ordering::Relaxed) == 0 {
            let _ = writeln!(std::io::stderr(), "error: {text}");
        }
    }));
}

/// `writ`
pub fn writ() -> ExitCode {
    quiet_about_closed_pipes();
    let Arguments { command } = arguments();
    let is_daemon = matches!(command, Command::Agent(_) | Command::Hub(_) | Command::Sync(_));
    run(is_daemon, commands::run(command))
}

/// `writ-agent`
pub fn agent() -> ExitCode {
    quiet_about_closed_pipes();
    let AgentAlone { agent } = AgentAlone::parse();
    run(true, Box::pin(agent.run()))
}

/// Runs a command; `is_daemon` if it runs until it is stopped.
fn run(is_daemon: bool, command: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(logs::filter(std::env::var("WRIT_LOG").ok().as_deref()))
        .with_writer(terminal::log_screen::Logs)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if is_daemon {
        allocator::return_memory_at_once();
    }
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider was installed already");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // The default of ten seconds would keep as many blocking threads as the largest burst needed.
        .thread_keep_alive(Duration::from_secs(1))
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let run = AssertUnwindSafe(|| runtime.block_on(command));
            catch_unwind(run).unwrap_or_else(|panic| match PRINT_FAILED.load(Ordering::Relaxed) {
                0 => resume_unwind(panic),
                code => Ok(ExitCode::from(code)),
            })
        }
        Err(error) => Err(anyhow::Error::from(error).context("start the async runtime")),
    };
    outcome.unwrap_or_else(|error| {
        let closed = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        };
        if error.chain().any(closed) {
            return ExitCode::from(CLOSED_PIPE);
        }
        eprintln!("error: {}", output::clean(&connect::words(&error)));
        ExitCode::from(ERROR)
    })
}

/// The command line. Run as a plugin of kubectl, its help says `kubectl writ`.
fn arguments() -> Arguments {
    let program = std::env::args_os().next().unwrap_or_default();
    let plugin = std::path::Path::new(&program)
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("kubectl-"));
    let mut command = Arguments::command();
    if plugin {
        command = command.bin_name("kubectl writ").display_name("kubectl-writ");
    }
    Arguments::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command without subcommands, with its path.
    fn leaves(command: &clap::Command, path: &str, all: &mut Vec<(String, clap::Command)>) {
        let subcommands: Vec<_> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .collect();
        if subcommands.is_empty() {
            all.push((path.trim().to_owned(), command.clone()));
        }
        for sub in subcommands {
            leaves(sub, &format!("{path} {}", sub.get_name()), all);
        }
    }

    /// Guards the feature of clap that wraps lines.
    #[test]
    fn help_is_wrapped_to_the_terminal() {
        for command in Arguments::command().get_subcommands().cloned() {
            let name = command.get_name().to_owned();
            // Examples are typed as they stand.
            let help = command.after_help("").term_width(70).render_long_help();
            let help = help.to_string();
            let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 70).collect();
            assert!(wide.is_empty(), "{name}: {wide:#?}");
        }
    }

    #[test]
    fn help_of_every_command_has_an_example_and_names_its_output() {
        let mut all = Vec::new();
        leaves(&Arguments::command(), "", &mut all);
        assert!(all.len() > 20, "{}", all.len());
        // They run until stopped, or write a script.
        let silent = ["up", "tour", "hub", "agent", "sync", "apiserver", "completion"];
        for (path, command) in all {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains("Example") && help.contains(&format!("writ {path}")),
                "writ {path} --help shows no example: {help}"
            );
            let prints = command.get_arguments().any(|arg| arg.get_short() == Some('o'));
            assert!(
                prints || silent.contains(&path.as_str()) || help.contains("there is no -o"),
                "writ {path} has no -o, and does not say why"
            );
        }
    }
}
