//! One write, a thousand watchers: how long until the last has it.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::sync::mpsc;
use writ_apiserver::Server;

use super::Broken;
use super::client::Target;
use super::ready::Embedded;

const WATCHERS: usize = 1000;
const ROUNDS: usize = 20;
const LIMIT: Duration = Duration::from_millis(50);
const PATH: &str = "/api/v1/namespaces/default/configmaps";

pub async fn run(broken: &mut Broken) -> Result<()> {
    println!("\nfan-out: from one write to the last of {WATCHERS} watchers, {ROUNDS} writes\n");
    println!("| | p50 | p99 |");
    println!("| --- | --- | --- |");
    for (name, mut times) in [
        ("in the process of the server", in_process().await?),
        ("over HTTPS, a connection each", over_sockets().await?),
    ] {
        let (median, worst) = super::writes::quantiles(&mut times);
        println!("| {name} | {median:.1?} | {worst:.1?} |");
        broken.check(
            median < LIMIT,
            format!("fan-out {name} in {median:?}, limit {LIMIT:?}"),
        );
    }
    Ok(())
}

/// Waits until every watcher has said that it saw the object of this round.
async fn all(seen: &mut mpsc::UnboundedReceiver<usize>, round: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    for _ in 0..WATCHERS {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, seen.recv()).await {
            Ok(Some(number)) if number == round => {}
            Ok(other) => bail!("a watcher saw {other:?}, not {round}"),
            Err(_) => bail!("not every watcher saw object {round}"),
        }
    }
    Ok(())
}

async fn in_process() -> Result<Vec<Duration>> {
    let server = Server::builder().start().await?;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let version = api.list(&kube::api::ListParams::default()).await?.metadata;
    let version = version.resource_version.context("a list has a version")?;
    let (sender, mut seen) = mpsc::unbounded_channel();
    for _ in 0..WATCHERS {
        let (api, version, sender) = (api.clone(), version.clone(), sender.clone());
        tokio::spawn(async move {
            let stream = api.watch(&WatchParams::default(), &version).await?;
            let mut stream = pin!(stream);
            while let Some(event) = stream.next().await {
                if let WatchEvent::Added(object) = event? {
                    sender.send(number(object.metadata.name.as_deref().unwrap_or_default()))?;
                }
            }
            anyhow::Ok(())
        });
    }
    let mut times = Vec::new();
    // The first round only says that all are watching.
    for round in 0..=ROUNDS {
        let object: ConfigMap = serde_json::from_value(json!({"metadata": {"name": format!("o-{round}")}}))?;
        let began = Instant::now();
        api.create(&PostParams::default(), &object).await?;
        all(&mut seen, round).await?;
        times.push(began.elapsed());
    }
    times.remove(0);
    Ok(times)
}

async fn over_sockets() -> Result<Vec<Duration>> {
    let server = Embedded::start().await?;
    let (sender, mut seen) = mpsc::unbounded_channel();
    let (ready, mut watching) = mpsc::unbounded_channel();
    for _ in 0..WATCHERS {
        let (target, sender, ready) = (server.target.clone(), sender.clone(), ready.clone());
        tokio::spawn(async move {
            let result = watch(&target, &sender, &ready).await;
            drop(ready.send(result));
        });
    }
    for _ in 0..WATCHERS {
        watching
            .recv()
            .await
            .context("a watcher says that it watches")??;
    }
    let mut writer = server.target.connect().await?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let body = json!({"metadata": {"name": format!("o-{round}")}}).to_string();
        let began = Instant::now();
        writer
            .send(Method::POST, PATH, "application/json", body.into())
            .await?;
        all(&mut seen, round).await?;
        times.push(began.elapsed());
    }
    times.remove(0);
    Ok(times)
}

/// Watches over a connection of its own; says so once, then says each object.
async fn watch(
    target: &Target,
    seen: &mpsc::UnboundedSender<usize>,
    ready: &mpsc::UnboundedSender<Result<()>>,
) -> Result<()> {
    let mut connection = target.connect().await?;
    let path = format!("{PATH}?watch=true&resourceVersion=0&labelSelector=!root");
    let response = connection
        .open(Method::GET, &path, "application/json", Bytes::new())
        .await?;
    drop(ready.send(Ok(())));
    let mut body = response.into_body();
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") {
                let event: serde_json::Value = serde_json::from_slice(&line)?;
                let name = event
                    .pointer("/object/metadata/name")
                    .and_then(serde_json::Value::as_str);
                if let Some(number) = name.and_then(|name| name.strip_prefix("o-")) {
                    seen.send(number.parse()?)?;
                }
                line.clear();
            }
        }
    }
    bail!("a watch ended")
}

/// The number in the name of an object of ours.
fn number(name: &str) -> usize {
    name.strip_prefix("o-")
        .and_then(|number| number.parse().ok())
        .unwrap_or(usize::MAX)
}
