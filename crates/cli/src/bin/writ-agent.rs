//! The agent of a managed cluster, and nothing else.

fn main() -> std::process::ExitCode {
    writ_cli::agent()
}
