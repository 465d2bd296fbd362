//! How long until a server answers.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::Method;
use kube::config::Kubeconfig;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use writ_testenv::{ControlPlane, Options};

use super::Broken;
use super::client::Target;

const LIMIT: Duration = Duration::from_millis(50);
const ROUNDS: usize = 20;

/// An embedded server in a process of its own. It ends with this one.
pub struct Embedded {
    pub target: Target,
    /// From the start of the process to the answer of `/readyz`.
    pub ready: Duration,
    _process: Child,
}

impl Embedded {
    pub async fn start() -> Result<Self> {
        let began = Instant::now();
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().context("the server has an output")?;
        let line = BufReader::new(output).lines().next_line().await?;
        let kubeconfig: Kubeconfig = serde_json::from_str(&line.context("the server says where it is")?)?;
        let target = Target::new(kubeconfig).await?;
        let mut connection = target.connect().await?;
        connection
            .send(Method::GET, "/readyz", "application/json", Bytes::new())
            .await?;
        Ok(Self {
            target,
            ready: began.elapsed(),
            _process: process,
        })
    }
}

/// The process of [`Embedded`]: serves, says its kubeconfig in one line, and ends when its input does.
pub async fn serve() -> Result<()> {
    let server = writ_apiserver::Server::builder().port(0).start().await?;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()?)?;
    println!("{}", serde_json::to_string(&kubeconfig)?);
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    server.stop().await;
    Ok(())
}

pub async fn run(broken: &mut Broken) -> Result<()> {
    let began = Instant::now();
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let real = began.elapsed();
    drop(plane);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(Embedded::start().await?.ready);
    }
    let (median, worst) = super::writes::quantiles(&mut times);
    println!("\nready: from the start of the process to the answer of /readyz, {ROUNDS} starts\n");
    println!("| | p50 | p99 |");
    println!("| --- | --- | --- |");
    println!("| embedded | {median:.1?} | {worst:.1?} |");
    println!("| kube-apiserver and etcd, one start | {real:.1?} | |");
    println!("| ratio | {:.0} | |", real.as_secs_f64() / median.as_secs_f64());
    broken.check(median < LIMIT, format!("ready in {median:?}, limit {LIMIT:?}"));
    Ok(())
}
