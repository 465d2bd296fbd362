//! Who may do what on which cluster: every command of writ.

fn main() -> std::process::ExitCode {
    writ_cli::writ()
}
