//! Accounts on managed clusters: first tokens of a thousand accounts on one cluster, on real control planes and with the
//! rights that are shipped; and, with `month`, a month of rotation on a thousand embedded clusters.
//!
//! `cargo run --release -p writ-bench --bin accounts [accounts | month [clusters]]`

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use writ_api::authentication::ManagedServiceAccount;
use writ_bench::{month, trace::Trace};
use writ_fleet::{Fleet, Kind, fleet, wait};

const FIRST_TOKENS_WITHIN: Duration = Duration::from_secs(30);
const HUB_REQUESTS: f64 = 3.0;
const SPOKE_REQUESTS: f64 = 2.0;
/// How long nothing may be asked once everything is done.
const QUIET: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("month") => a_month(arguments.next().map_or(Ok(1000), |n| n.parse())?).await,
        number => first_tokens(number.map_or(Ok(1000), str::parse)?).await,
    }
}

async fn a_month(clusters: usize) -> Result<()> {
    let started = Instant::now();
    let month = month::simulate(clusters, 5).await?;
    println!("| a month, {clusters} clusters x 5 accounts, validity 168 h | measured | limit |");
    println!("| --- | --- | --- |");
    println!(
        "| tokens renewed | {} ({:.1} per account) | |",
        month.renewals,
        ratio(month.renewals, month.accounts)
    );
    println!("| reconciles | {} | |", month.reconciles);
    println!(
        "| reconciles that failed during the outage of a day | {} | |",
        month.failures
    );
    println!(
        "| part of its life at which a token was renewed | {:.4} to {:.4} | 0.70 to 0.80 |",
        month.parts.0, month.parts.1
    );
    println!(
        "| first round: minutes, most renewals in one of them | {}, {} | |",
        month.minutes, month.most_per_minute
    );
    println!(
        "| least time that a token had left | {:#} | more than 0 |",
        month.least_left
    );
    println!(
        "| tokens reviewed on their cluster, all accepted | {} | |",
        month.reviewed
    );
    println!(
        "| after the outage the oldest first, on every cluster | {} | true |",
        month.oldest_first
    );
    println!("\nsimulated in {:.0?}", started.elapsed());
    let spread = month.most_per_minute <= 4 * (month.accounts / 1008 + 1) + 4;
    ensure!(
        month.oldest_first && spread,
        "rotation is not spread, or not in order"
    );
    ensure!(
        month.parts.0 > 0.699 && month.parts.1 < 0.801,
        "renewed too early or too late"
    );
    Ok(())
}

async fn first_tokens(accounts: usize) -> Result<()> {
    let fleet = Fleet::start(Kind::Real, 1).await?;
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["managed_service_account".into(), "registration".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    fleet.accept(1).await?;
    let _registration = fleet
        .run_agent(
            1,
            writ_agent::Options {
                controllers: vec!["registration".into()],
                ..writ_agent::Options::default()
            },
        )
        .await?;
    let (asked_hub, asked_spoke) = (Trace::default(), Trace::default());
    let hub = asked_hub.follow("agent", fleet.agent_identity("cluster1").await?);
    let spoke = fleet
        .cluster(1)?
        .service_account(fleet::AGENT_NAMESPACE, "writ-agent")
        .await?;
    let spoke = asked_spoke.follow("agent", spoke);
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        controllers: vec!["tokens".into()],
        ..writ_agent::Options::default()
    };
    let _agent = fleet::start("the agent", |health, shutdown| {
        writ_agent::run(hub, spoke, options, health, shutdown)
    })
    .await?;
    asked_hub.take();
    asked_spoke.take();

    let admin = fleet.hub.admin().await?;
    let api: Api<ManagedServiceAccount> = Api::namespaced(admin, "cluster1");
    let started = Instant::now();
    stream::iter(0..accounts)
        .map(|n| {
            let api = api.clone();
            async move {
                let account = serde_json::from_value(json!({
                    "apiVersion": "authentication.open-cluster-management.io/v1beta1",
                    "kind": "ManagedServiceAccount", "metadata": { "name": format!("robot-{n}") },
                    "spec": { "rotation": {} },
                }))?;
                api.create(&PostParams::default(), &account).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    let written = started.elapsed();
    wait::until_true("every account has its token", || async {
        let list = api.list(&ListParams::default()).await?;
        let reported = list.items.iter().filter(|account| {
            let status = account.status.as_ref();
            status.is_some_and(|status| status.token_secret_ref.is_some())
        });
        Ok(reported.count() == accounts)
    })
    .await
    .with_context(|| format!("after {:?}", started.elapsed()))?;
    let took = started.elapsed();
    // What was in flight.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (hub, spoke) = (
        ratio(asked_hub.take(), accounts),
        ratio(asked_spoke.take(), accounts),
    );
    tokio::time::sleep(QUIET).await;
    let quiet = asked_hub.take() + asked_spoke.take();

    println!("| {accounts} accounts on one cluster | measured | limit |");
    println!("| --- | --- | --- |");
    println!("| until the last account was written | {written:.1?} | |");
    println!("| until the last token was reported | {took:.1?} | {FIRST_TOKENS_WITHIN:?} |");
    println!("| requests of the agent to the hub, per account | {hub:.2} | {HUB_REQUESTS} |");
    println!("| requests of the agent to its cluster, per account | {spoke:.2} | {SPOKE_REQUESTS} |");
    println!("| requests within {QUIET:?} after that | {quiet} | 0 |");
    ensure!(took <= FIRST_TOKENS_WITHIN, "the first tokens took too long");
    ensure!(
        hub <= HUB_REQUESTS && spoke <= SPOKE_REQUESTS,
        "too many requests"
    );
    ensure!(quiet == 0, "the agent is not silent");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
fn ratio(a: usize, b: usize) -> f64 {
    a as f64 / b as f64
}
