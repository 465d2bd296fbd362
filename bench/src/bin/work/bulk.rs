//! A thousand works of ten ConfigMaps that wait for their agent.

use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use writ_api::work::ManifestWork;
use writ_bench::limits::Figures;

use super::{
    baseline, observe,
    stage::{Stage, namespace},
};

const WORKS: usize = 1000;
const MANIFESTS: usize = 10;
const ROUNDS: usize = 3;

/// Measures.
pub async fn run(figures: &mut Figures) -> Result<()> {
    let (mut ratios, mut bare_rates, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut resident, mut peak, mut processor) = (0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        let stage = Stage::start().await?;
        for name in ["bare", "writ"] {
            namespace(&stage.cluster, name).await?;
        }
        namespace(&stage.admin, "bare").await?;
        let bare: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "bare");
        let works: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "cluster1");

        create(&bare, "bare").await?;
        let waiting = bare.list(&ListParams::default()).await?;
        let started = Instant::now();
        let deliveries = stream::iter(
            waiting
                .iter()
                .map(|work| baseline::deliver(&bare, &stage.cluster, work)),
        )
        .buffer_unordered(baseline::WORKS)
        .try_collect::<()>();
        tokio::try_join!(deliveries, observe::all_applied(&bare, WORKS))?;
        let by_loop = started.elapsed().as_secs_f64();
        bare.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;

        create(&works, "writ").await?;
        let started = Instant::now();
        let agent = stage.agent(&["work"]).await?;
        observe::all_applied(&works, WORKS).await?;
        let by_agent = started.elapsed().as_secs_f64();
        let (now, most) = agent.memory()?;
        resident = resident.max(now);
        peak = peak.max(most);
        processor = processor.max(agent.processor()?);
        let count = f64::from(u32::try_from(WORKS)?);
        bare_rates.push(count / by_loop);
        rates.push(count / by_agent);
        ratios.push(by_loop / by_agent);
    }
    let list = |rates: &[f64]| {
        rates
            .iter()
            .map(|r| format!("{r:.0}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    figures.note(
        &format!("bare loop, {WORKS} works of {MANIFESTS} ConfigMaps, works per second, {ROUNDS} rounds"),
        list(&bare_rates),
    );
    figures.note("agent, the same, start of the process included", list(&rates));
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ROUNDS / 2).copied().unwrap_or_default();
    figures.at_least(
        "throughput, agent / bare loop, median",
        100.0 * median,
        60.0,
        " %",
    );
    figures.note("agent's processor time for them", format!("{processor:.1} s"));
    figures.at_most("agent's memory after them", resident, 40.0, " MiB");
    figures.at_most("agent's memory, the most it ever was", peak, 40.0, " MiB");
    Ok(())
}

async fn create(works: &Api<ManifestWork>, namespace: &str) -> Result<()> {
    let all: Vec<_> = (0..WORKS)
        .map(|n| baseline::work(&format!("{namespace}{n}"), namespace, MANIFESTS))
        .collect::<Result<_>>()?;
    stream::iter(&all)
        .map(|work| async move { works.create(&PostParams::default(), work).await.map(drop) })
        .buffer_unordered(baseline::WORKS)
        .try_collect::<()>()
        .await?;
    Ok(())
}
