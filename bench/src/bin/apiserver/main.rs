//! What the embedded API server costs, next to a real kube-apiserver with etcd on the same machine in the same run.
//!
//! `cargo run --release -p writ-bench --bin apiserver [ready|writes|fanout|memory]...`
//!
//! Servers run in processes of their own (this program, started again), as they do for a user. The limits:
//!
//! * ready, from the start of the process to the answer of `/readyz`: 50 ms;
//! * writes per second over the socket: 5 times those of the real server; median latency: a fifth;
//! * one write reaches 1,000 watchers: 50 ms;
//! * resident memory of an idle cluster with writ's definitions, slope from 100 to 1,000 clusters: 1 MiB.

mod client;
mod fanout;
mod memory;
mod ready;
mod writes;

use std::process::ExitCode;

use anyhow::{Result, bail};

/// The allocator of `writ`, whose memory this is about.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Limits that were broken.
#[derive(Default)]
struct Broken(Vec<String>);

impl Broken {
    /// Notes a figure that is not within its limit.
    fn check(&mut self, within: bool, what: impl Into<String>) {
        if !within {
            self.0.push(what.into());
        }
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        // The other processes of the benchmark.
        Some("serve") => return ready::serve().await.map(|()| ExitCode::SUCCESS),
        Some("clusters") => return memory::clusters().await.map(|()| ExitCode::SUCCESS),
        Some(_) => {}
        None => {
            arguments = ["ready", "writes", "fanout", "memory"]
                .map(str::to_owned)
                .to_vec();
        }
    }
    let mut broken = Broken::default();
    for part in &arguments {
        match part.as_str() {
            "ready" => ready::run(&mut broken).await?,
            "writes" => writes::run(&mut broken).await?,
            "fanout" => fanout::run(&mut broken).await?,
            "memory" => memory::run(&mut broken).await?,
            other => bail!("there is no part {other}; there are ready, writes, fanout and memory"),
        }
    }
    for limit in &broken.0 {
        println!("BROKEN: {limit}");
    }
    Ok(if broken.0.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
