//! What people mistype, or do in a hurry: each is said, and nothing is left behind.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use kube::{Api, api::PostParams, config::Kubeconfig};
use serde_json::json;
use writ_api::cluster::ManagedCluster;
use writ_process::supervise::ignores_hangup;

use super::{
    eventually, ok,
    support::{self, Up, writ},
};

pub fn names() -> Result<()> {
    let up = Up::start(&["--clusters", "1"])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    let says = |args: &str, code: i32, part: &str| {
        let answer = writ(args)?;
        ensure!(
            answer.code == code && answer.err.contains(part),
            "{args}: {}\n{}{}",
            answer.code,
            answer.out,
            answer.err
        );
        Ok(())
    };
    // Only the cluster knows its roles, and it is asked.
    let grant = "grant --to user:gina --role vieww -n web --cluster cluster1";
    says(
        &format!("{grant} --wait"),
        2,
        "The following cluster roles were not found: vieww",
    )?;
    let told = ok(writ("describe permission user-gina -n cluster1")?)?;
    ensure!(told.contains("A role is missing on cluster1"), "{told}");
    ok(writ(
        "revoke --from user:gina --role vieww -n web --cluster cluster1 --wait",
    )?)?;
    // An account may come later.
    says(
        "grant --to account:nobody --role view --cluster cluster1",
        0,
        "cluster1 has no account nobody yet",
    )?;
    eventually(
        "what is missing is told",
        || writ("describe permission account-nobody -n cluster1"),
        |told| told.out.contains("A ManagedServiceAccount is missing") && !told.out.contains("cluster1 says"),
    )?;
    // The hub is no managed cluster, though it has a context like theirs.
    let hub = "can-i list pods --as user:gina --cluster hub";
    says(hub, 2, "hub is not a managed cluster")?;
    for command in ["accept", "deny", "detach", "detach --force"] {
        says(&format!("{command} nope"), 2, "`writ get clusters` lists")?;
    }
    says(
        "describe sync nope --cluster cluster1",
        2,
        "`writ get syncs --cluster cluster1` lists them",
    )?;
    says("placement explain nope", 2, "`writ get placements -A` lists")?;
    says("describe clusters", 2, "which one?")?;
    says("get clusters/cluster1 cluster1", 2, "KIND/NAME")?;
    says(
        "install agent --cluster-name Bad_Name",
        2,
        "it is a namespace on the hub too",
    )?;
    says(
        "join --cluster-name kube-system --hub-kubeconfig none",
        2,
        "its namespace belongs to Kubernetes",
    )?;
    says("up --clusters 99999", 2, "99999 is not in")?;

    let folder = tempfile::tempdir()?;
    let other = folder.path().join("config");
    let with = |text: &str, part: &str| {
        fs::write(&other, text)?;
        let answer = support::writ(&other, &["get", "clusters"])?;
        ensure!(
            answer.code == 2 && answer.err.contains(part),
            "{text:?}: {}\n{}",
            answer.code,
            answer.err
        );
        anyhow::Ok(())
    };
    with("", "the kubeconfig has no context")?;
    // Where it is wrong is said, and what stands there is not.
    with("users:\n- name: a\n   user: {token: hunter2}\n", "line")?;
    let broken = support::writ(&other, &["get", "clusters"])?;
    ensure!(!broken.err.contains("hunter2"), "{}", broken.err);
    with(
        "{contexts: [{name: a}, {name: b}]}",
        "choose one with --context; there are: a, b",
    )?;
    let plain = fs::read_to_string(&up.kubeconfig)?.replace("https://", "http://");
    with(&plain, "is it an https server, while the kubeconfig says http?")?;
    Ok(())
}

/// What kubectl's users type without thinking.
pub fn rows() -> Result<()> {
    let up = Up::start(&["--clusters", "1"])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    let plain = ok(writ("get msa -n cluster1")?)?;
    let wide = ok(writ("get ManagedServiceAccounts -n cluster1 -o wide")?)?;
    let title = |text: &str| text.lines().next().unwrap_or_default().len();
    ensure!(title(&wide) > title(&plain), "{wide}\n{plain}");
    let bare = ok(writ("get clusters/cluster1 --no-headers")?)?;
    ensure!(
        bare.starts_with("cluster1 ") && bare.lines().count() == 1,
        "{bare}"
    );
    let cluster = ok(writ("describe cluster/cluster1")?)?;
    ensure!(cluster.contains("Name       cluster1"), "{cluster}");
    ensure!(
        cluster.contains(" bytes, see -o yaml)") && cluster.lines().all(|line| line.len() < 300),
        "a certificate takes the screen: {cluster}"
    );

    // Whoever may ask to join writes what the admin reads: it is shown, not obeyed; and it stops no other answer.
    tokio::runtime::Handle::current().block_on(stranger(&up))?;
    let list = ok(writ("get clusters")?)?;
    ensure!(list.contains("\\u{1b}[2J") && !list.contains('\u{1b}'), "{list}");
    let all = writ("get syncs --all")?;
    ensure!(
        all.code == 0 && all.err.contains("not accepted yet: stranger"),
        "{}\n{}",
        all.code,
        all.err
    );
    let early = writ("grant --to user:x --role view --cluster stranger")?;
    ensure!(
        early.code == 2 && early.err.contains("`writ accept stranger`"),
        "{}",
        early.err
    );

    let mut watch = Command::new(support::WRIT)
        .args(["get", "permissions", "-n", "cluster1", "-w"])
        .env("KUBECONFIG", &up.kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(watch.stdout.take().context("its output")?).lines();
    let seen = follow(lines, |line| {
        // The table is there, and so is the watch; then it changes.
        if line.starts_with("alice-reads-web") {
            ok(writ(
                "grant --to user:hugo --role view -n web --cluster cluster1 --wait",
            )?)?;
            ok(writ(
                "revoke --from user:hugo --role view -n web --cluster cluster1",
            )?)?;
        }
        Ok(line.starts_with("user-hugo") && line.ends_with("(deleted)"))
    });
    // It runs until it is stopped.
    let stopped = watch.kill();
    watch.wait()?;
    seen?;
    Ok(stopped?)
}

/// A cluster that nobody has accepted, with a sequence that clears the screen.
async fn stranger(up: &Up) -> Result<()> {
    let client = writ_fleet::cluster::client(Kubeconfig::read_from(&up.kubeconfig)?).await?;
    let cluster = serde_json::from_value(json!({
        "metadata": {"name": "stranger"},
        "spec": {"managedClusterClientConfigs": [{"url": "https://x\u{1b}[2J"}]},
    }))?;
    Api::<ManagedCluster>::all(client)
        .create(&PostParams::default(), &cluster)
        .await?;
    Ok(())
}

fn follow(
    lines: impl Iterator<Item = std::io::Result<String>>,
    mut is_last: impl FnMut(&str) -> Result<bool>,
) -> Result<()> {
    let mut all = Vec::new();
    let mut acted = false;
    for line in lines {
        let line = line?;
        // Rows repeat; what is done is done once.
        if !(acted && line.starts_with("alice")) && is_last(&line)? {
            return Ok(());
        }
        acted |= line.starts_with("alice");
        all.push(line);
    }
    bail!("it ended: {all:?}")
}

/// Agents that begin before the hub has given them their rights would be refused, and say so.
pub fn quiet() -> Result<()> {
    let up = Up::start(&["--clusters", "6", "--example", "none"])?;
    eventually(
        "all agents answer",
        || writ(&up.kubeconfig, &["get", "clusters"]),
        |output| output.out.matches(" True ").count() >= 6,
    )?;
    let log = up.log()?;
    ensure!(log.is_empty(), "{log}");
    ensure!(up.signal("INT")?.success());
    Ok(())
}

/// A folder with two clusters is not continued with one.
pub fn fewer() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("fleet");
    let data = data.to_str().unwrap();
    ensure!(
        Up::start(&["--clusters", "3", "--example", "none", "--data", data])?
            .signal("INT")?
            .success()
    );
    let fewer = support::run(Command::new(support::WRIT).args(["up", "--clusters", "1", "--data", data]))?;
    ensure!(
        fewer.code == 2 && fewer.err.contains("the folder keeps 3 clusters"),
        "{}\n{}",
        fewer.code,
        fewer.err
    );
    // What a person keeps somewhere is not written over.
    let mine = folder.path().join("mine");
    fs::create_dir(&mine)?;
    fs::write(mine.join("kubeconfig"), "precious")?;
    let other = support::run(Command::new(support::WRIT).args(["up", "--data"]).arg(&mine))?;
    ensure!(
        other.code == 2
            && other.err.contains("holds no fleet")
            && fs::read_to_string(mine.join("kubeconfig"))? == "precious",
        "{}\n{}",
        other.code,
        other.err
    );
    let up = Up::start(&["--example", "none", "--data", data])?;
    eventually(
        "all of them are there again",
        || writ(&up.kubeconfig, &["get", "clusters"]),
        |output| output.out.matches(" True ").count() >= 3,
    )?;
    ensure!(up.signal("INT")?.success());
    Ok(())
}

/// Whoever presses Ctrl-C again and again does not wait, and still leaves no keys and no servers behind.
pub fn hurry() -> Result<()> {
    hurried("INT")?;
    // Whoever started the tests with `nohup` wants that to be ignored, by what they start, too.
    if ignores_hangup() {
        return Ok(());
    }
    hurried("HUP")
}

fn hurried(signal: &str) -> Result<()> {
    let mut up = Up::start(&["--real", "--clusters", "1"])?;
    let started = Instant::now();
    let status = loop {
        up.send(signal)?;
        if let Some(status) = up.ended()? {
            break status;
        }
        ensure!(started.elapsed() < Duration::from_secs(30), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(matches!(status.code(), Some(0 | 130)), "{status}");
    let left: Vec<_> = fs::read_dir(up.scratch())?
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    ensure!(left.is_empty(), "{left:?} stayed");
    Ok(())
}
