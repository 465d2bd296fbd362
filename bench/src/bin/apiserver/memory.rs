//! What an idle cluster costs: the slope of resident memory from 100 to 1,000 clusters, each with all of writ's definitions.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::process::Command;
use writ_apiserver::Server;

use super::Broken;

const FROM: usize = 100;
const TO: usize = 1000;
const LIMIT_KIB: u64 = 1024;

pub async fn run(broken: &mut Broken) -> Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .arg("clusters")
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let &[definitions, first, last, millis] = numbers.as_slice() else {
        anyhow::bail!("not four numbers: {text}");
    };
    let slope = last.saturating_sub(first) / (TO - FROM) as u64;
    println!("\nmemory: idle clusters in one process, each with {definitions} definitions\n");
    println!("| | |");
    println!("| --- | --- |");
    println!("| resident with {FROM} clusters | {} MiB |", first / 1024);
    println!("| resident with {TO} clusters | {} MiB |", last / 1024);
    println!("| one cluster | {slope} KiB |");
    println!("| time to start one and define everything | {millis} ms |");
    broken.check(
        slope < LIMIT_KIB,
        format!("an idle cluster takes {slope} KiB, limit {LIMIT_KIB}"),
    );
    Ok(())
}

/// The process that holds the clusters. Prints the number of definitions, the resident memory at both ends in KiB, and the
/// milliseconds that a cluster took.
pub async fn clusters() -> Result<()> {
    let mut definitions = writ_api::crds().to_vec();
    for definition in &mut definitions {
        definition.metadata = ObjectMeta {
            name: definition.metadata.name.take(),
            ..ObjectMeta::default()
        };
    }
    let began = Instant::now();
    let mut servers = Vec::new();
    let mut first = 0;
    while servers.len() < TO {
        if servers.len() == FROM {
            first = resident().await?;
        }
        let server = Server::builder().start().await?;
        let api: Api<CustomResourceDefinition> = Api::all(server.client());
        for definition in &definitions {
            api.create(&PostParams::default(), definition).await?;
        }
        servers.push(server);
    }
    let millis = began.elapsed().as_millis() / TO as u128;
    let last = resident().await?;
    println!("{} {first} {last} {millis}", definitions.len());
    Ok(())
}

/// Resident memory in KiB, once everything has calmed down.
async fn resident() -> Result<u64> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.context("the kernel tells the resident memory")?.parse()?)
}
