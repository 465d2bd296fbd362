//! Is the embedded server like the real one?
//!
//! Request transcripts (`transcripts/*.yaml`) are sent to both, and the answers compared: status code,
//! reason, causes, objects. What may differ is listed in `transcripts/allowed.yaml`, each with a reason.
//! A second test sends random writes of several managers to both and compares objects and managedFields.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "conformance/compare.rs"]
mod compare;
#[path = "conformance/exchange.rs"]
mod exchange;
#[path = "conformance/frames.rs"]
mod frames;
#[path = "conformance/params.rs"]
mod params;
#[path = "conformance/random.rs"]
mod random;
#[path = "conformance/random_draw.rs"]
mod random_draw;
#[path = "conformance/tally.rs"]
mod tally;
#[path = "conformance/told.rs"]
mod told;
#[path = "conformance/transcript.rs"]
mod transcript;
#[path = "conformance/values.rs"]
mod values;
#[path = "conformance/webhook.rs"]
mod webhook;

use std::sync::{Arc, Mutex, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use writ_testenv::{Assets, ControlPlane, Options, harness};

use exchange::Pair;

fn main() {
    let mut arguments = Arguments::from_args();
    // Most of the time is spent on watches that wait for their end.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let missing = Assets::find().err();
    let missing_none = missing.is_none();
    let ignored = missing.is_some() && !harness::real_required();
    if let Some(missing) = missing.as_ref().filter(|_| ignored) {
        eprintln!("conformance: {missing}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let pair = Arc::new(if arguments.list || missing.is_some() {
        None
    } else {
        Some(
            runtime
                .block_on(start())
                .unwrap_or_else(|error| panic!("cannot start the servers: {error:?}")),
        )
    });
    let tally = Arc::new(Mutex::new(tally::Tally::default()));
    let mut trials = Vec::new();
    // What changes a whole cluster, such as a default class, waits until it is alone with it.
    let turn = Arc::new(RwLock::new(()));
    for transcript in transcript::all() {
        let turn = turn.clone();
        let (pair, tally, handle) = (pair.clone(), tally.clone(), runtime.handle().clone());
        let name = format!("transcript::{}", transcript.name);
        let run = move || {
            let alone = transcript.name.ends_with("-alone");
            let _one = alone.then(|| turn.write().unwrap());
            let _many = (!alone).then(|| turn.read().unwrap());
            let pair = pair.as_ref().as_ref().ok_or("there is no real control plane")?;
            let outcome = handle.block_on(transcript.run(pair));
            tally.lock().unwrap().add(&outcome);
            outcome.verdict().map_err(Failed::from)
        };
        trials.push(Trial::test(name, run).with_ignored_flag(ignored));
    }
    for seed in random::seeds() {
        let (pair, handle, turn) = (pair.clone(), runtime.handle().clone(), turn.clone());
        let run = move || {
            let _many = turn.read().unwrap();
            let pair = pair.as_ref().as_ref().ok_or("there is no real control plane")?;
            handle.block_on(random::run(pair, seed)).map_err(Failed::from)
        };
        trials.push(Trial::test(format!("random::{seed}"), run).with_ignored_flag(ignored));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let tally = tally.lock().unwrap();
    tally.print();
    drop(pair);
    let everything =
        arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list && missing_none;
    if everything && let Err(thin) = tally.enough() {
        panic!("the transcripts do not say enough: {thin}");
    }
    conclusion.exit();
}

async fn start() -> anyhow::Result<Pair> {
    let plane = ControlPlane::start(Options {
        controllers: true,
        ..Options::default()
    })
    .await?;
    params::keep(&plane.client()?).await?;
    let server = writ_apiserver::Server::builder().port(0).start().await?;
    Pair::new(plane, server, webhook::Webhook::start().await?)
}
