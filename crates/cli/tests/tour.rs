//! `writ tour --yes` on both kinds of control plane, as a person runs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::process::Command;

use anyhow::{Result, ensure};
use writ_testenv::harness;

fn main() {
    harness::run(vec![
        harness::plain("every_proof_of_the_tour_holds", "embedded", || tour(&[])),
        harness::real("every_proof_of_the_tour_holds_there_too", || tour(&["--real"])),
    ]);
}

async fn tour(args: &'static [&'static str]) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writ"));
    command
        .args(["tour", "--yes", "--kubeconfig", "/nowhere"])
        .args(args)
        .env("WRIT_LOG", "warn");
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let (out, err) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
    // Every chapter was there, and none proved nothing.
    for number in 1..=5 {
        ensure!(out.contains(&format!("\n== {number}. ")), "{out}");
    }
    let held: usize = out
        .lines()
        .find_map(|line| line.strip_suffix(" proofs held"))
        .unwrap()
        .parse()?;
    ensure!(held >= 20, "only {held} proofs:\n{out}");
    Ok(())
}
