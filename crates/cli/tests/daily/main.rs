//! A day with a fleet: the commands against a running `writ up`, and `writ up` itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
#![allow(dead_code, reason = "the support module serves other tests too")]

mod habits;
mod mistakes;
#[path = "../support/mod.rs"]
mod support;

use std::{
    fs,
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use support::{Output, Up, named, writ};
use writ_testenv::{Assets, harness};

type Case = fn() -> Result<()>;

fn main() {
    let plain = |name: &str, case: Case| {
        harness::plain(name, "embedded", move || async move {
            tokio::task::spawn_blocking(case).await?
        })
    };
    let real = |name: &str, case: Case| {
        harness::real(
            name,
            move || async move { tokio::task::spawn_blocking(case).await? },
        )
    };
    harness::run(vec![
        plain("rights_are_granted_explained_and_revoked", rights),
        plain("objects_are_described_with_a_way_out", descriptions),
        plain("clusters_are_reached_through_an_account", through_an_account),
        plain("questions_are_typed_as_with_kubectl", habits::habits),
        plain(
            "what_lives_on_clusters_is_listed_from_the_hub",
            habits::on_clusters,
        ),
        plain("an_empty_hub_allows_nothing", habits::empty),
        plain("a_folder_is_of_one_kind", habits::one_kind),
        plain("a_terminal_shows_a_table_until_it_is_left", habits::table),
        plain("up_shows_the_example_and_stops_on_a_signal", up_stops),
        plain("up_continues_from_its_folder_after_a_kill", up_continues),
        plain("many_clusters_start_without_complaint", mistakes::quiet),
        plain("a_folder_keeps_its_clusters", mistakes::fewer),
        plain("a_mistyped_name_is_told", mistakes::names),
        plain("rows_are_as_with_kubectl", mistakes::rows),
        real("up_runs_real_control_planes", up_real),
        real("up_leaves_nothing_in_a_hurry", mistakes::hurry),
        real("kubectl_runs_writ_as_a_plugin", plugin),
    ]);
}

/// Asks again until the answer is as wanted.
fn eventually(what: &str, ask: impl Fn() -> Result<Output>, is: impl Fn(&Output) -> bool) -> Result<Output> {
    let started = Instant::now();
    loop {
        let output = ask()?;
        if is(&output) {
            return Ok(output);
        }
        if started.elapsed() > Duration::from_mins(1) {
            bail!("{what}: {} {}{}", output.code, output.out, output.err);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ok(output: Output) -> Result<String> {
    ensure!(output.code == 0, "{}\n{}{}", output.code, output.out, output.err);
    Ok(output.out)
}

fn rights() -> Result<()> {
    let up = Up::start(&[])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    let asks = "can-i list pods -n web --as user:dora --cluster cluster1";
    ensure!(writ(asks)?.code == 1);

    let dry = ok(writ(
        "grant --to user:dora --role view --namespace web --cluster cluster1 --dry-run",
    )?)?;
    ensure!(
        dry.contains("kind: ClusterPermission") && dry.contains("name: dora"),
        "{dry}"
    );
    ensure!(
        !ok(writ("get permissions -o name")?)?.contains("user-dora"),
        "a dry run wrote something"
    );

    let granted = ok(writ(
        "grant --to user:dora --role view --namespace web --cluster cluster1 --wait",
    )?)?;
    ensure!(
        granted.contains("ClusterPermission cluster1/user-dora created"),
        "{granted}"
    );
    ok(writ(asks)?)?;
    let again = ok(writ(
        "grant --to user:dora --role view --namespace web --cluster cluster1",
    )?)?;
    ensure!(again.contains("unchanged"), "{again}");
    let more = ok(writ(
        "grant --to user:dora --role edit --namespace default --cluster cluster1 --wait",
    )?)?;
    ensure!(more.contains("extended"), "{more}");
    ok(writ(
        "can-i create configmaps -n default --as user:dora --cluster cluster1",
    )?)?;
    let both = writ("can-i list pods -n web --as user:dora --all -o json")?;
    let verdicts: Value = serde_json::from_str(&both.out)?;
    ensure!(
        both.code == 1 && verdicts[0]["allowed"] == true && verdicts[1]["allowed"] == false,
        "{verdicts}"
    );
    let why = ok(writ("why list pods -n web --as user:dora --cluster cluster1")?)?;
    ensure!(
        why.contains("user:dora may list pods") && why.contains("ClusterRole"),
        "{why}"
    );
    // The example is delivered while the fleet is used already.
    eventually(
        "who may list pods",
        || writ("who-can list pods -n web --cluster cluster1"),
        |who| who.code == 0 && who.out.contains("dora") && who.out.contains("alice"),
    )?;

    let revoke = "revoke --from user:dora --role view --namespace web --cluster cluster1";
    let revoked = ok(writ(revoke)?)?;
    ensure!(revoked.contains("user-dora changed"), "{revoked}");
    eventually("revoked", || writ(asks), |output| output.code == 1)?;
    let nothing = writ(revoke)?;
    ensure!(
        nothing.code == 1 && nothing.err.contains("no ClusterPermission grants user:dora"),
        "{}",
        nothing.err
    );
    let last = ok(writ(
        "revoke --from user:dora --role edit --namespace default --cluster cluster1",
    )?)?;
    ensure!(last.contains("user-dora deleted"), "{last}");
    eventually(
        "the permission is gone",
        || writ("get permissions -o name"),
        |output| output.code == 0 && !output.out.contains("user-dora"),
    )?;
    let unknown = writ("grant --to user:dora --role view --cluster nowhere")?;
    ensure!(
        unknown.code == 2 && unknown.err.contains("this hub has no cluster nowhere"),
        "{}",
        unknown.err
    );
    let wrong = writ("grant --to dora --role view --cluster cluster1")?;
    ensure!(
        wrong.code == 2 && wrong.err.contains("write user:NAME"),
        "{}",
        wrong.err
    );
    Ok(())
}

/// An event about an object, as any controller writes it.
fn tell(up: &Up, object: &str) -> Result<()> {
    let object: Value = serde_json::from_str(object)?;
    let event = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "told", "namespace": "cluster1"},
        "involvedObject": {"uid": object["metadata"]["uid"], "namespace": "cluster1"},
        "type": "Warning", "reason": "Tested", "message": "a test was here",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }))?;
    let config = kube::config::Kubeconfig::read_from(&up.kubeconfig)?;
    tokio::runtime::Handle::current().block_on(async {
        let client = writ_fleet::cluster::client(config).await?;
        let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(client, "cluster1");
        events.create(&kube::api::PostParams::default(), &event).await?;
        Ok(())
    })
}

fn descriptions() -> Result<()> {
    let up = Up::start(&[])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    let permission = eventually(
        "the permission is in place",
        || writ("describe permission alice-reads-web"),
        |output| output.out.contains("It is in place"),
    )?;
    for part in [
        "Conditions",
        "What clusters say",
        "RoleBinding web/alice-reads-web",
        "What to do next",
    ] {
        ensure!(
            permission.out.contains(part),
            "{part} is missing:\n{}",
            permission.out
        );
    }
    let work = eventually(
        "the work is refused",
        || writ("describe work greeting -n cluster1"),
        |output| output.out.contains("If its executor lacks a right"),
    )?;
    ensure!(
        work.out.contains("writ grant --to serviceaccount:web/deployer"),
        "{}",
        work.out
    );
    eventually(
        "the cluster is described",
        || writ("describe cluster cluster1"),
        |cluster| cluster.out.contains("ManagedClusterJoined") && cluster.out.contains("claim"),
    )?;
    let set = ok(writ("describe set europe")?)?;
    ensure!(
        set.contains("kubectl label managedcluster CLUSTER region=europe"),
        "{set}"
    );
    let member = eventually(
        "the set names its members",
        || writ("describe set global"),
        |output| output.out.contains("cluster2") && output.out.contains("available"),
    )?;
    ensure!(member.out.contains("member"), "{}", member.out);
    eventually(
        "the add-on is described",
        || writ("describe addon managed-serviceaccount -n cluster1"),
        |addon| addon.out.contains("namespace") && addon.out.contains("open-cluster-management-agent"),
    )?;
    tell(&up, &ok(writ("get permissions alice-reads-web -o json")?)?)?;
    let events = ok(writ("describe permission alice-reads-web")?)?;
    ensure!(
        events.contains("\nEvents\n") && events.contains("Warning   Tested   a test was here"),
        "{events}"
    );
    let sync = eventually(
        "the sync is described",
        || writ("describe sync tenant --context writ-cluster1"),
        |output| output.out.contains("ClusterRole tenant/tenant-settings"),
    )?;
    ensure!(sync.code == 0);
    let json: Value = serde_json::from_str(&ok(writ("describe account robot -o json")?)?)?;
    ensure!(json["object"]["kind"] == "ManagedServiceAccount", "{json}");
    let nobody = writ("describe account nobody")?;
    ensure!(
        nobody.code == 2
            && nobody.err.contains(
                "there is no ManagedServiceAccount nobody in any namespace; `writ get accounts` lists them"
            ),
        "{}",
        nobody.err
    );
    Ok(())
}

/// A kubeconfig that knows only the hub: a managed cluster is read with the token of an account.
fn through_an_account() -> Result<()> {
    let up = Up::start(&[])?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("hub-only");
    let text = fs::read_to_string(&up.kubeconfig)?;
    fs::write(&file, text.replace("writ-cluster", "elsewhere-"))?;
    let writ = |args: &str| writ(&file, &args.split_whitespace().collect::<Vec<_>>());
    let asks = "can-i list pods -n web --as user:alice --cluster cluster1";
    let missing = writ(asks)?;
    ensure!(
        missing.code == 2
            && missing
                .err
                .contains("no context \"cluster1\" or \"writ-cluster1\"")
            && missing.err.contains("--account (there are: robot)"),
        "{}",
        missing.err
    );
    let none = writ("can-i list pods --as user:alice --cluster cluster2")?;
    ensure!(
        none.err.contains("there is none in the namespace cluster2"),
        "{}",
        none.err
    );
    let unknown = writ(&format!("{asks} --account ghost"))?;
    ensure!(
        unknown.code == 2 && unknown.err.contains("ManagedServiceAccount cluster1/ghost"),
        "{}",
        unknown.err
    );
    // The token works, but reads no roles: the server's own words, and what to do.
    let refused = eventually(
        "the token is there",
        || writ(&format!("{asks} --account robot")),
        |output| output.err.contains("refused"),
    )?;
    ensure!(
        refused.err.contains("robot") && refused.err.contains("forbidden"),
        "{}",
        refused.err
    );
    ok(writ(
        "grant --to account:robot --role cluster-admin --cluster cluster1 --wait",
    )?)?;
    let answer = eventually(
        "the account reads the roles",
        || writ(&format!("{asks} --account robot")),
        |output| output.code == 0,
    )?;
    ensure!(answer.out.contains("yes"), "{}", answer.out);

    // A cluster that cannot be reached is named; a missing answer is no `no`.
    let url = up
        .greeting
        .lines()
        .find_map(|line| line.trim().strip_prefix("cluster2"))
        .unwrap()
        .trim();
    fs::write(&file, text.replace(url, "https://127.0.0.1:1"))?;
    let dead = writ("can-i list pods -n web --as user:alice --all")?;
    ensure!(
        dead.code == 2 && dead.err.contains("cluster2: ") && dead.err.contains("cannot be reached"),
        "{}",
        dead.err
    );
    ensure!(
        dead.out.contains("cluster1") && !dead.out.contains("cluster2"),
        "the others are answered: {}",
        dead.out
    );
    Ok(())
}

fn up_stops() -> Result<()> {
    for signal in ["INT", "TERM"] {
        let mut up = Up::start(&["--clusters", "1"])?;
        for part in [
            "ready after",
            "  hub ",
            "  cluster1 ",
            "export KUBECONFIG=",
            "/writ get clusters",
            "/writ tour",
        ] {
            ensure!(up.greeting.contains(part), "{}", up.greeting);
        }
        // Plain lines, as nobody looks at a terminal.
        for line in [
            "hub: clusters/cluster1: ",
            "hub: permissions/cluster1/alice-reads-web: ",
            "hub: accounts/cluster1/robot: ",
            "hub: works/cluster1/greeting: ",
            "cluster1: syncs/config-management-system/tenant: ",
        ] {
            ensure!(!up.line(line)?.contains('\u{1b}'));
        }
        let kubeconfig = up.kubeconfig.clone();
        let status = up.signal(signal)?;
        ensure!(status.success(), "{signal}: {status}");
        ensure!(
            !kubeconfig.exists(),
            "the credentials of a fleet that is gone stay behind"
        );
    }
    Ok(())
}

fn up_continues() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("fleet");
    // A port that is free now; the fleet takes it and the next ones.
    let base = free_ports()?.to_string();
    let args = [
        "--clusters",
        "1",
        "--data",
        data.to_str().unwrap(),
        "--port-base",
        &base,
    ];
    let up = Up::start(&args)?;
    ensure!(up.greeting.contains(&format!(":{base}")), "{}", up.greeting);
    ensure!(up.kubeconfig.starts_with(&data), "{}", up.kubeconfig.display());
    let kubeconfig = up.kubeconfig.clone();
    let writ = |args: &str| writ(&kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    ok(writ(
        "grant --to user:erin --role view --namespace web --cluster cluster1 --wait",
    )?)?;
    // What is made of the example stays so, and its repository is there again.
    ok(writ(
        "revoke --from user:alice --role view --namespace web --cluster cluster1",
    )?)?;
    let synced = || writ("get syncs --context writ-cluster1 -o json");
    let commit = |output: &Output| -> Option<String> {
        let list: serde_json::Value = serde_json::from_str(&output.out).ok()?;
        Some(list.pointer("/items/0/status/sync/commit")?.as_str()?.to_owned())
    };
    eventually("the example is synced", synced, |output| commit(output).is_some())?;
    let before = commit(&synced()?);
    let second = support::run(Command::new(support::WRIT).args(["up", "--data"]).arg(&data))?;
    ensure!(
        second.code == 2 && second.err.contains("is in use: another server runs on it"),
        "{}",
        second.err
    );
    let status = up.signal("KILL")?;
    ensure!(!status.success());
    let gone = writ("get clusters")?;
    ensure!(
        gone.code == 2 && gone.err.contains("the API server cannot be reached"),
        "{}",
        gone.err
    );

    let up = Up::start(&args)?;
    let permissions = ok(writ("get permissions -o name")?)?;
    ensure!(
        permissions.contains("user-erin") && !permissions.contains("alice-reads-web"),
        "{permissions}"
    );
    ensure!(data.join("repository/HEAD").exists() && commit(&synced()?) == before);
    eventually(
        "erin still may",
        || writ("can-i list pods -n web --as user:erin --cluster cluster1"),
        |output| output.code == 0,
    )?;
    // And it still works: what is revoked now goes.
    ok(writ(
        "revoke --from user:erin --role view --namespace web --cluster cluster1",
    )?)?;
    eventually(
        "erin may no more",
        || writ("can-i list pods -n web --as user:erin --cluster cluster1"),
        |output| output.code == 1,
    )?;
    ensure!(up.signal("INT")?.success());
    Ok(())
}

/// The first of a few free ports in a row.
fn free_ports() -> Result<u16> {
    for base in (21000..60000).step_by(97) {
        if (base..base + 3).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ok(base);
        }
    }
    bail!("no free ports")
}

fn up_real() -> Result<()> {
    let up = Up::start(&["--real", "--clusters", "1"])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    eventually(
        "the example is in place",
        || writ("can-i list pods -n web --as user:alice --cluster cluster1"),
        |output| output.code == 0,
    )?;
    ensure!(up.signal("INT")?.success());
    Ok(())
}

fn plugin() -> Result<()> {
    let up = Up::start(&["--clusters", "1", "--example", "none"])?;
    let bin = named("kubectl-writ")?;
    let assets = Assets::find().map_err(|missing| anyhow::anyhow!("{missing}"))?;
    let kubectl = |args: &[&str]| {
        support::run(
            Command::new(assets.binary("kubectl"))
                .args(args)
                .env("PATH", bin.path())
                .env("KUBECONFIG", &up.kubeconfig),
        )
    };
    let clusters = ok(kubectl(&["writ", "get", "clusters"])?)?;
    ensure!(clusters.contains("cluster1"), "{clusters}");
    let help = ok(kubectl(&["writ", "get", "--help"])?)?;
    ensure!(help.contains("Usage: kubectl writ get"), "{help}");
    let refused = kubectl(&[
        "writ",
        "can-i",
        "list",
        "pods",
        "--as",
        "user:nobody",
        "--cluster",
        "cluster1",
    ])?;
    ensure!(refused.code == 1, "the exit code goes through: {}", refused.code);
    Ok(())
}
