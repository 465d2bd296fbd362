//! Who may do what on which cluster: the one binary of writ.

mod commands;
mod connect;
mod describe;
mod example;
mod fleet;
mod grant;
mod kinds;
mod live;
mod output;
mod process;
mod progress;
mod question;
mod reference;
mod tour;
mod webhook;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use writ_runtime::logs;

/// Agents live long and must stay small: this allocator gives memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Who may do what on which cluster? A hub holds the intent, an agent in every cluster makes it true there.
#[derive(Debug, Parser)]
#[command(name = "writ", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

/// How a process ends that a closed pipe stops: as if by the signal.
const CLOSED_PIPE: u8 = 141;

/// `writ get clusters | head -1`: that nobody reads on is no fault, and no reason for a backtrace.
fn quiet_about_closed_pipes() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(CLOSED_PIPE.into());
        }
        usual(info);
    }));
}

fn main() -> ExitCode {
    quiet_about_closed_pipes();
    let arguments = arguments();
    tracing_subscriber::fmt()
        .with_env_filter(logs::filter(std::env::var("WRIT_LOG").ok().as_deref()))
        .with_writer(std::io::stderr)
        .init();
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider was installed already");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(arguments.command)),
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
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// The command line. As a plugin of kubectl, the help speaks of `kubectl writ`.
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
