//! Habits of kubectl, and questions that cross clusters.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{
    eventually, ok,
    support::{self, Output, Up, writ},
};

/// Short names, kinds without namespaces, accounts, one object as one object.
pub fn habits() -> Result<()> {
    let up = Up::start(&["--clusters", "1"])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    eventually(
        "alice may read, by a short name",
        || writ("can-i list po -n web --as user:alice --cluster cluster1"),
        |output| output.code == 0,
    )?;
    ok(writ("can-i get cm -n web --as user:alice --cluster cluster1")?)?;

    // A RoleBinding to a role that speaks of nodes gives no right to nodes; to the namespace itself it does.
    ok(writ(
        "grant --to user:frank --role cluster-admin -n web --cluster cluster1 --wait",
    )?)?;
    let nodes = writ("can-i list nodes -n web --as user:frank --cluster cluster1")?;
    ensure!(nodes.code == 1, "{}", nodes.out);
    ok(writ(
        "can-i get namespaces/web --as user:frank --cluster cluster1",
    )?)?;
    let words = ok(writ("why list nodes --as user:frank --cluster cluster1")?)?;
    ensure!(words.contains("may not list nodes.\n"), "{words}");

    // An account is who its cluster says, once it has said so.
    let account = "can-i list pods --as account:robot --cluster cluster1";
    eventually("nothing is granted", || writ(account), |answer| answer.code == 1)?;
    ok(writ(
        "grant --to account:robot --role view --cluster cluster1 --wait",
    )?)?;
    let yes = ok(writ(account)?)?;
    ensure!(yes.contains("yes"), "{yes}");
    ok(writ("can-i list pods --as account:robot --all")?)?;
    let nowhere = writ("can-i list pods --as account:robot")?;
    ensure!(
        nowhere.code == 2 && nowhere.err.contains("name one with --cluster"),
        "{}",
        nowhere.err
    );
    let unknown = writ("why list pods --as acount:robot --cluster cluster1")?;
    ensure!(
        unknown.code == 2
            && unknown
                .err
                .contains("none of user, group, serviceaccount, account"),
        "{}",
        unknown.err
    );

    // One object is one object, several are a list.
    let json = |output: Output| -> Result<Value> { Ok(serde_json::from_str(&ok(output)?)?) };
    let one = json(writ("get clusters cluster1 -o json")?)?;
    ensure!(one["kind"] == "ManagedCluster", "{one}");
    let all = json(writ("get clusters -o json")?)?;
    ensure!(all["kind"] == "List", "{all}");

    // The namespace of the context is where people look, unless they say otherwise.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("elsewhere");
    let mut config = kube::config::Kubeconfig::read_from(&up.kubeconfig)?;
    for named in config
        .contexts
        .iter_mut()
        .filter(|named| named.name == "writ-hub")
    {
        named.context.as_mut().unwrap().namespace = Some("default".into());
    }
    fs::write(&file, serde_json::to_vec(&config)?)?;
    let there = |args: &str| support::writ(&file, &args.split_whitespace().collect::<Vec<_>>());
    let none = there("get accounts")?;
    ensure!(
        none.err.contains("in namespace default"),
        "{}{}",
        none.out,
        none.err
    );
    ensure!(ok(there("get accounts -A")?)?.contains("robot"));
    ensure!(ok(there("get accounts -n cluster1")?)?.contains("robot"));

    // What was done is said, and a mistyped cluster is no missing grant.
    let half =
        writ("revoke --from user:frank --role cluster-admin -n web --cluster cluster1 --cluster clutser2")?;
    ensure!(
        half.code == 2
            && half.out.contains("cluster1/user-frank deleted")
            && half.err.contains("this hub has no cluster clutser2"),
        "{}\n{}{}",
        half.code,
        half.out,
        half.err
    );
    ok(writ(
        "revoke --from account:robot --role view --cluster cluster1 --wait",
    )?)?;
    ensure!(writ(account)?.code == 1, "it was waited for");
    Ok(())
}

pub fn on_clusters() -> Result<()> {
    let up = Up::start(&[])?;
    let writ = |args: &str| writ(&up.kubeconfig, &args.split_whitespace().collect::<Vec<_>>());
    let hint = writ("get syncs")?;
    ensure!(
        hint.code == 0 && hint.err.contains("--cluster NAME, or --all"),
        "{}",
        hint.err
    );
    let here = ok(writ("get syncs --cluster cluster1")?)?;
    ensure!(here.contains("tenant") && !here.contains("CLUSTER "), "{here}");
    let all = ok(writ("get syncs --all")?)?;
    ensure!(
        all.starts_with("CLUSTER") && all.contains("cluster1   config-management-system"),
        "{all}"
    );
    let all: Value = serde_json::from_str(&ok(writ("get syncs --all -o json")?)?)?;
    ensure!(
        all[0]["cluster"] == "cluster1" && all[0]["object"]["kind"] == "RootSync",
        "{all}"
    );
    let wrong = writ("get permissions --cluster cluster1")?;
    ensure!(
        wrong.code == 2 && wrong.err.contains("permissions live on the hub"),
        "{}",
        wrong.err
    );
    let sync = ok(writ("describe sync tenant --cluster cluster1")?)?;
    ensure!(sync.contains("Cluster    cluster1"), "{sync}");
    ok(writ("describe sync tenant --all")?)?;
    let none = writ("describe sync nobody --all")?;
    ensure!(
        none.code == 2 && none.err.contains("there is no RootSync nobody"),
        "{}",
        none.err
    );

    // One cluster without a context: the others are answered, it is named, and nobody takes that for a yes.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("some");
    let text = fs::read_to_string(&up.kubeconfig)?;
    fs::write(&file, text.replace("writ-cluster2", "elsewhere"))?;
    let there = |args: &str| support::writ(&file, &args.split_whitespace().collect::<Vec<_>>());
    let some = there("who-can list pods -n web --all")?;
    ensure!(
        some.code == 2
            && some.out.contains("cluster1")
            && some.err.contains("cluster cluster2 cannot be reached"),
        "{}\n{}{}",
        some.code,
        some.out,
        some.err
    );
    let some = there("get syncs --all")?;
    ensure!(
        some.code == 2 && some.out.contains("tenant") && some.err.contains("cluster2"),
        "{}\n{}{}",
        some.code,
        some.out,
        some.err
    );
    // A kubeconfig that cannot be read is not one without contexts.
    fs::write(&file, "contexts: {")?;
    let broken = there("can-i list pods --as user:alice --cluster cluster1 --account robot")?;
    ensure!(
        broken.code == 2 && broken.err.contains("which cannot be read"),
        "{}",
        broken.err
    );
    Ok(())
}

pub fn empty() -> Result<()> {
    let up = Up::start(&["--clusters", "0"])?;
    for asks in [
        "can-i list pods --as user:alice --all",
        "who-can list pods --all",
        "get syncs --all",
    ] {
        let answer = writ(&up.kubeconfig, &asks.split_whitespace().collect::<Vec<_>>())?;
        ensure!(
            answer.code == 2 && answer.err.contains("this hub has no managed clusters"),
            "{asks}: {}\n{}{}",
            answer.code,
            answer.out,
            answer.err
        );
    }
    Ok(())
}

/// A folder that embedded control planes filled is not one for real ones, which would find nothing in it.
pub fn one_kind() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("fleet");
    let args = [
        "--clusters",
        "1",
        "--example",
        "none",
        "--data",
        data.to_str().unwrap(),
    ];
    ensure!(Up::start(&args)?.signal("INT")?.success());
    let mode = fs::metadata(&data)?.permissions().mode() & 0o777;
    ensure!(mode == 0o700, "{mode:o}");
    let other = support::run(Command::new(support::WRIT).args(["up", "--real"]).args(args))?;
    ensure!(
        other.code == 2
            && other.err.contains("holds a fleet of embedded control planes")
            && other.err.contains("take another folder"),
        "{}\n{}",
        other.code,
        other.err
    );
    Ok(())
}

/// On a terminal, which `script` of util-linux makes.
pub fn table() -> Result<()> {
    // `exec`: a shell that stays beside it (dash does) would be interrupted too, and end as that.
    let writ = format!("exec {} up --clusters 1", support::WRIT);
    let child = Command::new("script")
        .args(["-q", "-e", "-c", &writ, "/dev/null"])
        .env("WRIT_LOG", "info")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("there is no program `script`: nothing is looked at");
        return Ok(());
    };
    let looked = look(&mut child);
    // It may have been left alone.
    let _ = child.kill();
    looked
}

fn look(child: &mut Child) -> Result<()> {
    let mut output = child.stdout.take().unwrap();
    let (send, parts) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
            if send.send(text).is_err() {
                break;
            }
        }
    });
    let mut all = String::new();
    // The last whole picture: from where the screen is cleared.
    while !all.rsplit("\u{1b}[2J").next().is_some_and(|last| {
        [
            "export KUBECONFIG=",
            "WHERE",
            "alice-reads-web",
            "Available, Applied",
        ]
        .iter()
        .all(|part| last.contains(part))
    }) {
        let part = parts.recv_timeout(Duration::from_mins(1));
        all.push_str(&part.map_err(|_| anyhow::anyhow!("no such picture:\n{all}"))?);
    }
    // Ctrl-C, as a person types it.
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\x03")?;
    input.flush()?;
    while let Ok(part) = parts.recv_timeout(Duration::from_mins(1)) {
        all.push_str(&part);
    }
    let status = child.wait()?;
    ensure!(status.success() && all.contains("stopping"), "{status}\n{all}");
    Ok(())
}
