//! Who may do what on which cluster: the one binary of writ.

mod commands;
mod connect;
mod fleet;
mod kinds;
mod live;
mod output;
mod process;
mod question;
mod webhook;

use std::process::ExitCode;

use clap::Parser;

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

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("WRIT_LOG")
                .unwrap_or_else(|_| "info,kube_client=off,kube_runtime=warn".into()),
        )
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
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
