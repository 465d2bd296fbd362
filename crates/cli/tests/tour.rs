//! `writ tour --yes` on both kinds of control plane, as a person runs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
#![allow(dead_code, reason = "the support module serves other tests too")]

mod support;

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    discovery::{Discovery, verbs},
};
use support::{Output, Up};
use writ_fleet::wait;
use writ_testenv::harness;

/// Every proof counts: one that is lost is a promise that nobody looks at any more.
const PROOFS: usize = 23;

fn main() {
    harness::run(vec![
        harness::plain("every_proof_of_the_tour_holds", "embedded", || held(&[])),
        harness::real("every_proof_of_the_tour_holds_there_too", || held(&["--real"])),
        harness::plain("a_proof_that_fails_fails_the_tour", "embedded", fails),
        harness::plain("an_interrupted_tour_leaves_nothing", "embedded", interrupted),
        harness::plain("a_dead_fleet_is_not_used", "embedded", dead),
    ]);
}

/// The tour, where neither a variable nor a home names a fleet.
fn tour(home: &Path) -> Command {
    let mut command = Command::new(support::WRIT);
    command
        .args(["tour", "--yes"])
        .env_remove("KUBECONFIG")
        .env("HOME", home)
        .env("WRIT_LOG", "warn")
        .stdin(Stdio::null());
    // The real control plane is not looked for in that home.
    if let Ok(assets) = writ_testenv::Assets::find() {
        command.env("KUBEBUILDER_ASSETS", assets.folder());
    }
    command
}

async fn run(mut command: Command) -> Result<Output> {
    tokio::task::spawn_blocking(move || support::run(&mut command)).await?
}

async fn held(args: &'static [&'static str]) -> Result<()> {
    let home = tempfile::tempdir()?;
    let mut command = tour(home.path());
    command.args(args);
    let output = run(command).await?;
    let out = &output.out;
    ensure!(output.code == 0, "{}\n{out}\n{}", output.code, output.err);
    // Every chapter was there, and none proved less than it should.
    for number in 1..=5 {
        ensure!(out.contains(&format!("\n== {number}. ")), "{out}");
    }
    ensure!(out.contains(&format!("\n{PROOFS} proofs held\n")), "{out}");
    Ok(())
}

/// tour-alice may do everything already: that she is refused cannot be proven.
async fn fails() -> Result<()> {
    let home = tempfile::tempdir()?;
    let up = tokio::task::spawn_blocking(|| Up::start(&["--clusters", "1", "--example", "none"])).await??;
    let binding = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "tour-alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tour-alice"}],
    }))?;
    Api::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>::all(client(&up, "writ-cluster1").await?)
        .create(&PostParams::default(), &binding)
        .await?;
    let mut command = tour(home.path());
    command
        .args(["--timeout", "10s", "--kubeconfig"])
        .arg(&up.kubeconfig);
    let output = run(command).await?;
    ensure!(output.code == 1, "{}\n{}{}", output.code, output.out, output.err);
    ensure!(
        output
            .out
            .contains("NOT PROVEN on cluster1: user tour-alice may not list pods")
            && output.out.contains("FAILED: 1. a permission reaches a cluster"),
        "{}",
        output.out
    );
    Ok(())
}

/// Interrupted in the middle of each chapter, on a fleet that runs on.
async fn interrupted() -> Result<()> {
    let home = tempfile::tempdir()?;
    let up = tokio::task::spawn_blocking(|| Up::start(&["--clusters", "1"])).await??;
    let there = || {
        let mut command = tour(home.path());
        command.arg("--kubeconfig").arg(&up.kubeconfig);
        command
    };
    for chapter in 1..=5 {
        let mut command = there();
        command.stdout(Stdio::piped());
        let (code, out) =
            tokio::task::spawn_blocking(move || interrupt(&mut command, chapter, "-INT")).await??;
        ensure!(code == Some(130), "chapter {chapter}: {code:?}\n{out}");
        for context in ["writ-hub", "writ-cluster1"] {
            let client = client(&up, context).await?;
            wait::until_true(&format!("nothing of chapter {chapter} is left"), || async {
                let left = left(&client).await?;
                ensure!(left.is_empty(), "{context}: {left:?}");
                Ok(true)
            })
            .await?;
        }
    }
    // What a killed one leaves is in nobody's way.
    for chapter in 1..=5 {
        let mut command = there();
        command.stdout(Stdio::piped());
        tokio::task::spawn_blocking(move || interrupt(&mut command, chapter, "-KILL")).await??;
    }
    let output = run(there()).await?;
    ensure!(output.code == 0, "{}\n{}{}", output.code, output.out, output.err);
    Ok(())
}

/// Runs the tour until a chapter has seen what it wrote, and sends it a signal.
fn interrupt(command: &mut Command, chapter: usize, signal: &str) -> Result<(Option<i32>, String)> {
    let mut child = command.spawn()?;
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let (mut out, mut inside, mut shown) = (String::new(), false, 0);
    loop {
        let mut line = String::new();
        ensure!(reader.read_line(&mut line)? > 0, "it ended by itself:\n{out}");
        inside = inside || line.starts_with(&format!("== {chapter}. "));
        shown += usize::from(inside && (line.starts_with("  seen:") || line.starts_with("  proof")));
        out.push_str(&line);
        if shown == 3 {
            break;
        }
    }
    let id = child.id().to_string();
    ensure!(Command::new("kill").args([signal, &id]).status()?.success());
    reader.read_to_string(&mut out)?;
    Ok((child.wait()?.code(), out))
}

/// Every object that the tour made, and every label.
async fn left(client: &Client) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for (resource, capabilities) in discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        if !capabilities.supports_operation(verbs::LIST) || resource.kind == "Event" {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list(&ListParams::default()).await?.items {
            let labelled = object.labels().keys().any(|key| key.starts_with("tour-"));
            if object.name_any().starts_with("tour-") || labelled {
                left.push(format!("{} {}", resource.kind, object.name_any()));
            }
        }
    }
    Ok(left)
}

async fn client(up: &Up, context: &str) -> Result<Client> {
    let options = KubeConfigOptions {
        context: Some(context.into()),
        ..KubeConfigOptions::default()
    };
    let config =
        kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(&up.kubeconfig)?, &options).await?;
    Ok(Client::try_from(config)?)
}

/// The kubeconfig of a fleet that was killed: the tour says so and starts its own. A file that is named and cannot be
/// read is an error.
async fn dead() -> Result<()> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("kubeconfig");
    let copy = file.clone();
    tokio::task::spawn_blocking(move || {
        let up = Up::start(&["--clusters", "1", "--example", "none"])?;
        std::fs::copy(&up.kubeconfig, copy)?;
        up.signal("KILL")
    })
    .await??;
    let mut command = tour(home.path());
    command.env("KUBECONFIG", &file);
    let output = run(command).await?;
    ensure!(
        output.code == 0
            && output.out.contains("the fleet of the kubeconfig does not answer")
            && output.out.contains("Starting a hub and a managed cluster."),
        "{}\n{}{}",
        output.code,
        output.out,
        output.err
    );
    for (file, says) in [
        (file.as_path(), "does not answer"),
        (Path::new("/dev/null"), "is not of a fleet"),
    ] {
        let mut command = tour(home.path());
        command.arg("--kubeconfig").arg(file);
        let output = run(command).await?;
        ensure!(
            output.code == 2 && output.err.contains(says),
            "{}\n{}",
            output.code,
            output.err
        );
    }
    let mut command = tour(home.path());
    command.args(["--kubeconfig", "/nowhere/config"]);
    let output = run(command).await?;
    ensure!(
        output.code == 2 && output.err.contains("cannot read the kubeconfig /nowhere/config"),
        "{}\n{}",
        output.code,
        output.err
    );
    Ok(())
}
