//! An agent with a hundred works of ten ConfigMaps and nothing to do.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use serde_json::json;
use writ_api::{cluster::ManagedCluster, work::ManifestWork};
use writ_bench::limits::Figures;

use super::{baseline, observe, stage::Stage};

const WORKS: usize = 100;
const SETTLE: Duration = Duration::from_secs(30);
/// Longer than a watch lives, so that the requests that renew watches count.
const WINDOW: Duration = Duration::from_mins(5);

/// Measures, with every controller of the agent running.
pub async fn run(figures: &mut Figures) -> Result<()> {
    let stage = Stage::audited().await?;
    let works: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "cluster1");
    let cluster: ManagedCluster = serde_json::from_value(
        json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "cluster1"}, "spec": {"hubAcceptsClient": true}}),
    )?;
    Api::all(stage.admin.clone())
        .create(&PostParams::default(), &cluster)
        .await?;
    // The hub's part of a registration: without its lease an agent asks for it again and again.
    let lease: Lease = serde_json::from_value(
        json!({"metadata": {"name": "managed-cluster-lease"}, "spec": {"leaseDurationSeconds": 60}}),
    )?;
    Api::namespaced(stage.admin.clone(), "cluster1")
        .create(&PostParams::default(), &lease)
        .await?;
    let agent = stage.agent(&[]).await?;
    let all: Vec<_> = (0..WORKS)
        .map(|n| baseline::work(&format!("w{n}"), "default", 10))
        .collect::<Result<_>>()?;
    stream::iter(&all)
        .map(|work| {
            let works = &works;
            async move { works.create(&PostParams::default(), work).await.map(drop) }
        })
        .buffer_unordered(baseline::WORKS)
        .try_collect::<()>()
        .await?;
    observe::all_applied(&works, WORKS).await?;
    tokio::time::sleep(SETTLE).await;
    let (before, processor) = (stage.requests()?, agent.processor()?);
    tokio::time::sleep(WINDOW).await;
    let after = stage.requests()?;
    let seconds = WINDOW.as_secs_f64();
    for ((name, before), after) in ["hub", "managed cluster"].iter().zip(before).zip(after) {
        let new: Vec<_> = after.iter().skip(before.len()).collect();
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for request in &new {
            *kinds
                .entry(request.split('?').next().unwrap_or_default())
                .or_default() += 1;
        }
        for (kind, count) in kinds {
            eprintln!("  {name}: {count} x {kind}");
        }
        let rate = f64::from(u32::try_from(new.len())?) / seconds;
        figures.at_most(
            &format!("idle, {WORKS} works of 10 ConfigMaps, requests per second to the {name}"),
            rate,
            0.1,
            "",
        );
    }
    let (resident, _) = agent.memory()?;
    figures.at_most("idle, agent's memory", resident, 25.0, " MiB");
    let share = 100.0 * (agent.processor()? - processor) / seconds;
    figures.note("idle, agent's share of a core", format!("{share:.2} %"));
    let log = agent.log()?;
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    for warning in &warnings {
        eprintln!("  {warning}");
    }
    figures.note("idle, warnings in the agent's log", warnings.len().to_string());
    Ok(())
}
