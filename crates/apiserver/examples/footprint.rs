//! What an idle cluster costs: `cargo run --release -p writ-apiserver --example footprint -- COUNT FOLDER_WITH_CRDS`.
//!
//! Prints the resident memory per cluster and the time that one takes to become ready.

use std::time::Instant;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use writ_apiserver::Server;

fn resident() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages * 4096)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(Ok(100), |count| count.parse())?;
    let mut definitions: Vec<CustomResourceDefinition> = Vec::new();
    if let Some(folder) = arguments.next() {
        for entry in std::fs::read_dir(folder)? {
            let text = std::fs::read_to_string(entry?.path())?;
            definitions.extend(serde_saphyr::from_multiple::<CustomResourceDefinition>(&text)?);
        }
    }
    println!("{} definitions", definitions.len());
    let mut servers = Vec::new();
    let mut start = None;
    for number in 0..count {
        let began = Instant::now();
        let server = Server::builder().start().await?;
        let ready = began.elapsed();
        let api: Api<CustomResourceDefinition> = Api::all(server.client());
        for definition in &definitions {
            let name = definition.metadata.name.clone().unwrap_or_default();
            let mut value = serde_json::to_value(definition)?;
            if let Some(map) = value.as_object_mut() {
                map.remove("status");
            }
            api.patch(&name, &PatchParams::apply("footprint"), &Patch::Apply(value))
                .await?;
        }
        servers.push(server);
        if number < 3 || number == count - 1 {
            println!(
                "cluster {number}: ready in {ready:?}, with definitions in {:?}",
                began.elapsed()
            );
        }
        if number == count / 10 {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            start = Some((number + 1, resident()?));
        }
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    if let Some((from, before)) = start {
        let grown = resident()?.saturating_sub(before);
        println!(
            "{} KiB per cluster (from {from} to {count})",
            grown / 1024 / (count - from).max(1)
        );
    }
    Ok(())
}
