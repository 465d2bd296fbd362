//! What is in a Secret, and every token, stays where it belongs: not in logs at their most talkative, not in an event, a
//! condition, a metric or any other object. Marked Secrets are delivered, refused, fought over and repaired on both kinds
//! of cluster; then everything that was said is searched for the marks.

#![allow(clippy::indexing_slicing, clippy::needless_pass_by_value, reason = "tests")]

mod accounts;
mod marks;
mod works;

use std::sync::Arc;

use anyhow::{Result, ensure};
use writ_e2e::{Fleet, Kind, fleet};
use writ_testenv::harness;

use marks::{Log, Marks};

fn main() {
    let log = match Log::install() {
        Ok(log) => Arc::new(log),
        Err(error) => {
            eprintln!("{error:?}");
            std::process::exit(101);
        }
    };
    let other = Arc::clone(&log);
    let name = "secrecy/nothing_secret_is_said";
    harness::run(vec![
        harness::plain(name, "embedded", move || on(Kind::Embedded, "embedded", log)),
        harness::real(name, move || on(Kind::Real, "real", other)),
    ]);
}

async fn on(kind: Kind, name: &str, log: Arc<Log>) -> Result<()> {
    let fleet = Fleet::start(kind, 1).await?;
    let marks = Marks::new(name);
    // With tokens that are known here, so that they can be searched for as well.
    let hub_token = fleet.hub.token(fleet::HUB_NAMESPACE, "writ-hub").await?;
    let agent_token = fleet
        .cluster(1)?
        .token(fleet::AGENT_NAMESPACE, "writ-agent")
        .await?;
    marks.token(&hub_token);
    marks.token(&agent_token);
    let mut said = Vec::new();
    let client = fleet.hub.with_token(&hub_token).await?;
    let hub = fleet::start("the hub", |health, shutdown| {
        said.push(health.clone());
        writ_hub::run(client, Fleet::hub_options(), health, shutdown)
    })
    .await?;
    fleet.accept(1).await?;
    let hub_side = fleet.agent_identity("cluster1").await?;
    let spoke_side = fleet.cluster(1)?.with_token(&agent_token).await?;
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        ..writ_agent::Options::default()
    };
    let agent = fleet::start("the agent", |health, shutdown| {
        said.push(health.clone());
        writ_agent::run(hub_side, spoke_side, options, health, shutdown)
    })
    .await?;

    works::deliver(&fleet, &marks).await?;
    accounts::keep(&fleet, &marks).await?;

    let mut found = marks.search_objects("hub", &fleet.hub.admin().await?).await?;
    found.extend(
        marks
            .search_objects("cluster1", &fleet.cluster(1)?.admin().await?)
            .await?,
    );
    for health in said {
        found.extend(marks.search("metrics", &health.metrics()?));
    }
    agent.stop().await?;
    hub.stop().await?;
    found.extend(marks.search_log(&log)?);
    ensure!(found.is_empty(), "secrets were told:\n{}", found.join("\n"));
    Ok(())
}
