//! From the creation of a work with ten ConfigMaps until a user sees it applied.

use std::time::Instant;

use anyhow::Result;
use kube::{Api, api::PostParams};
use writ_api::work::ManifestWork;
use writ_bench::limits::{Figures, Times};

use super::{
    baseline, observe,
    stage::{Stage, namespace},
};

const RUNS: usize = 100;
const WARM_UP: usize = 10;
const MANIFESTS: usize = 10;

/// Measures.
pub async fn run(figures: &mut Figures) -> Result<()> {
    let stage = Stage::start().await?;
    namespace(&stage.admin, "bare").await?;
    let _agent = stage.agent(&["work"]).await?;
    let bare: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "bare");
    let works: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "cluster1");
    let (mut by_loop, mut by_agent) = (Times::default(), Times::default());
    for run in 0..RUNS + WARM_UP {
        let work = baseline::work(&format!("bare{run}"), "default", MANIFESTS)?;
        let started = Instant::now();
        let act = async {
            let created = bare.create(&PostParams::default(), &work).await?;
            baseline::deliver(&bare, &stage.cluster, &created).await
        };
        observe::until(&bare, &format!("bare{run}"), act, |work| {
            observe::is(work, "True")
        })
        .await?;
        let bare_time = started.elapsed();

        let work = baseline::work(&format!("writ{run}"), "default", MANIFESTS)?;
        let started = Instant::now();
        let act = async {
            works.create(&PostParams::default(), &work).await?;
            Ok(())
        };
        observe::until(&works, &format!("writ{run}"), act, |work| {
            observe::is(work, "True")
        })
        .await?;
        if run >= WARM_UP {
            by_loop.push(bare_time);
            by_agent.push(started.elapsed());
        }
    }
    figures.note(
        &format!("bare loop, {RUNS} works of {MANIFESTS} ConfigMaps, created to applied"),
        by_loop.text(),
    );
    figures.note("agent, the same", by_agent.text());
    for percent in [50, 99] {
        let ratio = by_agent.quantile(percent) / by_loop.quantile(percent);
        figures.at_most(
            &format!("created to applied, p{percent}, agent / bare loop"),
            ratio,
            2.0,
            "",
        );
    }
    Ok(())
}
