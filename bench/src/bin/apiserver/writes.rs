//! Writes over the socket: how many per second, and how long one takes.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use serde_json::json;
use writ_testenv::{ControlPlane, Options};

use super::Broken;
use super::client::{Connection, Target};
use super::ready::Embedded;

/// Both limits: times the writes, and a part of the latency.
const TIMES: f64 = 5.0;
/// Connections that write at the same time, for throughput. Latency is that of one.
const CONNECTIONS: usize = 16;
/// Objects that each connection writes with each verb.
const EACH: usize = 100;
/// Objects of the one connection whose latency counts.
const ALONE: usize = 300;

/// The verbs, in the order in which an object lives.
const VERBS: [&str; 5] = ["create", "update", "merge patch", "apply", "delete"];

/// What one server did with one verb.
#[derive(Clone, Copy, Default)]
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

pub async fn run(broken: &mut Broken) -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let real = Target::new(plane.kubeconfig().clone()).await?;
    let embedded = Embedded::start().await?;
    // A first round warms both up: connections, caches, the Go scheduler.
    let mut figures = [[Figures::default(); VERBS.len()]; 2];
    for round in 0..2 {
        for (target, figures) in [&real, &embedded.target].into_iter().zip(&mut figures) {
            *figures = measure(target, round).await?;
        }
    }
    drop(plane);
    println!(
        "\nwrites over HTTPS: {CONNECTIONS} connections for writes per second, one for latency; ConfigMaps of 300 bytes\n"
    );
    println!("| | writes/s real | embedded | ratio | p50 real | embedded | ratio | p99 real | embedded |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let [real, embedded] = figures;
    for ((verb, real), embedded) in VERBS.iter().zip(real).zip(embedded) {
        let more = embedded.per_second / real.per_second;
        let faster = real.p50.as_secs_f64() / embedded.p50.as_secs_f64();
        println!(
            "| {verb} | {:.0} | {:.0} | {more:.1} | {:.0?} | {:.0?} | 1/{faster:.1} | {:.0?} | {:.0?} |",
            real.per_second, embedded.per_second, real.p50, embedded.p50, real.p99, embedded.p99
        );
        broken.check(
            more >= TIMES,
            format!("{verb}: {more:.1} times the writes per second, limit {TIMES}"),
        );
        broken.check(
            faster >= TIMES,
            format!("{verb}: 1/{faster:.1} of the latency, limit 1/{TIMES}"),
        );
    }
    Ok(())
}

async fn measure(target: &Target, round: usize) -> Result<[Figures; VERBS.len()]> {
    let namespace = format!("bench-{round}");
    let mut alone = target.connect().await?;
    let body = json!({"metadata": {"name": namespace}}).to_string();
    alone
        .send(
            Method::POST,
            "/api/v1/namespaces",
            "application/json",
            body.into(),
        )
        .await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(target.connect().await?);
    }
    let mut figures = [Figures::default(); VERBS.len()];
    for (verb, figures) in VERBS.iter().zip(&mut figures) {
        let began = Instant::now();
        let together = connections.iter_mut().enumerate();
        try_join_all(together.map(|(n, c)| write_all(c, verb, &namespace, format!("c{n}"), EACH))).await?;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let writes = (CONNECTIONS * EACH) as f64;
        figures.per_second = writes / began.elapsed().as_secs_f64();
        let mut times = write_all(&mut alone, verb, &namespace, "alone".into(), ALONE).await?;
        (figures.p50, figures.p99) = quantiles(&mut times);
    }
    Ok(figures)
}

/// Writes objects one after the other; returns how long each took.
async fn write_all(
    connection: &mut Connection,
    verb: &str,
    namespace: &str,
    prefix: String,
    count: usize,
) -> Result<Vec<Duration>> {
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        let path = format!("{collection}/{name}");
        let object = |text: &str| {
            let data = json!({"text": text.repeat(20), "number": number.to_string()});
            let metadata = json!({"name": name, "labels": {"app": "bench"}});
            Bytes::from(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
                    .to_string(),
            )
        };
        let (method, path, media, body) = match verb {
            "create" => (
                Method::POST,
                collection.clone(),
                "application/json",
                object("created "),
            ),
            "update" => (Method::PUT, path, "application/json", object("updated ")),
            "merge patch" => (
                Method::PATCH,
                path,
                "application/merge-patch+json",
                Bytes::from_static(br#"{"data":{"patched":"yes"}}"#),
            ),
            "apply" => (
                Method::PATCH,
                path + "?fieldManager=bench&force=true",
                "application/apply-patch+yaml",
                object("applied "),
            ),
            _ => (Method::DELETE, path, "application/json", Bytes::new()),
        };
        let began = Instant::now();
        connection.send(method, &path, media, body).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// The median and the 99th of a hundred.
pub fn quantiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |q: usize| {
        let index = (times.len() * q / 100).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default()
    };
    (at(50), at(99))
}
