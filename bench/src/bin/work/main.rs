//! What delivering works costs, next to a bare loop that sends only the writes that must happen. Two real control
//! planes and the agent as a process of its own, so that its memory can be read.
//!
//! `cargo build --release -p writ && cargo run --release -p writ-bench --bin work [latency|bulk|executor|reaction|idle]...`

mod baseline;
mod bulk;
mod executor;
mod idle;
mod latency;
mod observe;
mod reaction;
mod stage;

use std::process::ExitCode;

use anyhow::{Result, bail};
use writ_bench::limits::Figures;

const PARTS: [&str; 5] = ["latency", "bulk", "executor", "reaction", "idle"];

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("there is no part {unknown:?}, only {}", PARTS.join(", "));
    }
    let mut figures = Figures::default();
    for part in PARTS {
        if !asked.is_empty() && !asked.iter().any(|wanted| wanted == part) {
            continue;
        }
        match part {
            "latency" => latency::run(&mut figures).await?,
            "bulk" => bulk::run(&mut figures).await?,
            "executor" => executor::run(&mut figures).await?,
            "reaction" => reaction::run(&mut figures).await?,
            _ => idle::run(&mut figures).await?,
        }
    }
    Ok(figures.finish())
}
