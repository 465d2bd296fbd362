//! A cluster joins, runs and leaves, with the binary and the roles that are shipped, on both kinds of cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "support/ground.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod ground;

use std::fs;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::Secret};
use kube::{
    Api,
    api::{ListParams, PostParams, ResourceExt},
    config::Kubeconfig,
};
use serde_json::{Value, json};
use writ_api::{
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, ManagedClusterSetBinding, Placement},
};
use writ_fleet::{Kind, wait};
use writ_hub::registration::operator_actions;
use writ_testenv::harness;

use crate::ground::{AGENT, Ground, command, spawn, write};

fn main() {
    harness::run(vec![
        harness::plain("a_cluster_joins_runs_and_leaves", "embedded", || {
            whole_life(Kind::Embedded)
        }),
        harness::real("a_cluster_joins_runs_and_leaves", || whole_life(Kind::Real)),
        harness::plain("an_installed_agent_joins", "embedded", || {
            installed(Kind::Embedded)
        }),
        harness::real("an_installed_agent_joins", || installed(Kind::Real)),
        harness::plain("a_token_is_handed_over", "embedded", || token(Kind::Embedded)),
        harness::real("a_token_is_handed_over", || token(Kind::Real)),
    ]);
}

async fn whole_life(kind: Kind) -> Result<()> {
    let ground = Ground::start(kind, &["--controllers", "managed_service_account"]).await?;
    let (bootstrap, spoke) = (ground.file("bootstrap"), ground.file("spoke"));
    let join = [
        "join",
        "--hub-kubeconfig",
        &bootstrap,
        "--cluster-name",
        "cluster1",
        "--kubeconfig",
        &spoke,
    ];
    // Nobody accepts in time: it says so, and goes on next time with the same request.
    let early = command(&join).args(["--timeout", "2s"]).output().await?;
    ensure!(
        early.status.code() == Some(1),
        "{}",
        String::from_utf8(early.stderr)?
    );
    ensure!(String::from_utf8(early.stderr)?.contains("cluster1 was not accepted in time"));
    let mut joining = spawn(&join, ground.folder.path().join("join.log"))?;
    let pending = wait::until("the request", || async {
        Ok(operator_actions::pending(&ground.admin, "cluster1").await?.pop())
    })
    .await?;
    // A second request makes it a question.
    let config = Kubeconfig::read_from(ground.folder.path().join("bootstrap"))?;
    let thief = writ_fleet::cluster::client(config).await?;
    let requests: Api<CertificateSigningRequest> = Api::all(thief);
    let key = writ_agent::registration::identity::new_key()?;
    let second = writ_agent::registration::identity::request("cluster1", "thief", &key)?;
    let second = requests.create(&PostParams::default(), &second).await?.name_any();
    let asked = ground.writ(&["accept", "cluster1"]).await?;
    ensure!(asked.code == Some(1), "{}{}", asked.out, asked.err);
    ensure!(
        asked.out.contains(&pending.name)
            && asked.out.contains(&second)
            && asked.out.contains(&pending.fingerprint)
    );
    let log = ground.folder.path().join("join.log");
    wait::until_true("the agent tells its key", || async {
        Ok(fs::read_to_string(&log)?.contains(&pending.fingerprint))
    })
    .await?;
    let wrong = ground.writ(&["accept", "cluster1", "--csr", "nothing"]).await?;
    ensure!(
        wrong.code == Some(2) && wrong.err.contains("no pending certificate request \"nothing\""),
        "{}",
        wrong.err
    );
    let accepted = ground
        .writ(&["accept", "cluster1", "--csr", &pending.name, "-o", "json"])
        .await?;
    ensure!(accepted.code == Some(0), "{}", accepted.err);
    let answer: Value = serde_json::from_str(&accepted.out)?;
    ensure!(
        answer["accepted"] == true && answer["requests"][0]["fingerprint"] == pending.fingerprint.as_str()
    );
    ensure!(joining.wait().await?.success());
    let secrets: Api<Secret> = Api::namespaced(ground.fleet.cluster(1)?.admin().await?, AGENT);
    let kept = secrets
        .get("hub-kubeconfig-secret")
        .await?
        .data
        .context("no data")?;
    ensure!(
        ["kubeconfig", "tls.crt", "tls.key", "cluster-name", "agent-name"]
            .iter()
            .all(|k| kept.contains_key(*k))
    );

    // The agent finds its identity there, and reports.
    let agent = [
        "agent",
        "--cluster-name",
        "cluster1",
        "--spoke-kubeconfig",
        &spoke,
        "--controllers",
        "addons,registration",
    ];
    let running = spawn(&agent, ground.folder.path().join("agent.log"))?;
    ground.wait_available("True").await?;
    addon(&ground).await?;
    explain(&ground).await?;
    ensure!(ground.writ(&["deny", "cluster1"]).await?.code == Some(0));
    // The request of the thief still waits: accepting again is a choice, and the agent needs none of it.
    let thief: Api<CertificateSigningRequest> = Api::all(ground.admin.clone());
    thief.delete(&second, &kube::api::DeleteParams::default()).await?;
    let again = ground.writ(&["accept", "cluster1"]).await?;
    ensure!(
        again.code == Some(0) && again.out.contains("is in again"),
        "{}{}",
        again.out,
        again.err
    );
    ensure!(ground.writ(&["accept", "nobody"]).await?.code == Some(2));
    drop(running);

    let gone = ground.writ(&["detach", "cluster1", "--timeout", "30s"]).await?;
    ensure!(
        gone.code == Some(0) && gone.out.contains("cluster1 is detached"),
        "{}{}",
        gone.out,
        gone.err
    );
    Ok(())
}

/// The agent runs without `tokens`, so it registers the add-on that keeps accounts: the Secret is all that its pod needs.
async fn addon(ground: &Ground) -> Result<()> {
    let spoke = ground.fleet.cluster(1)?.admin().await?;
    let secrets: Api<Secret> = Api::namespaced(spoke, "open-cluster-management-agent-addon");
    let secret = wait::until("the credential of the add-on", || async {
        Ok(secrets.get_opt("managed-serviceaccount-hub-kubeconfig").await?)
    })
    .await?;
    let mounted = tempfile::tempdir()?;
    for (name, bytes) in secret.data.context("no data")? {
        fs::write(mounted.path().join(name), bytes.0)?;
    }
    let config = Kubeconfig::read_from(mounted.path().join("kubeconfig"))?;
    let accounts: Api<ManagedServiceAccount> =
        Api::namespaced(writ_fleet::cluster::client(config).await?, "cluster1");
    wait::until_true("the add-on reads its accounts", || async {
        accounts.list(&ListParams::default()).await?;
        Ok(true)
    })
    .await
}

/// `writ placement explain`: who is chosen, and why the other is not.
async fn explain(ground: &Ground) -> Result<()> {
    let admin = ground.admin.clone();
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let other = serde_json::from_value(json!({"apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "metadata": {"name": "other"}, "spec": {}}))?;
    clusters.create(&PostParams::default(), &other).await?;
    let bindings: Api<ManagedClusterSetBinding> = Api::namespaced(admin.clone(), "default");
    let binding = serde_json::from_value(json!({"apiVersion": "cluster.open-cluster-management.io/v1beta2",
        "kind": "ManagedClusterSetBinding", "metadata": {"name": "global"}, "spec": {"clusterSet": "global"}}))?;
    bindings.create(&PostParams::default(), &binding).await?;
    let placements: Api<Placement> = Api::namespaced(admin, "default");
    let placement =
        serde_json::from_value(json!({"apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement", "metadata": {"name": "web"}, "spec": {"numberOfClusters": 1}}))?;
    placements.create(&PostParams::default(), &placement).await?;
    wait::until_true("the explanation", || async {
        let answer = ground.writ(&["placement", "explain", "web"]).await?;
        let line = |name: &str| {
            answer
                .out
                .lines()
                .find(|l| l.starts_with(name))
                .map(str::to_owned)
                .unwrap_or_default()
        };
        Ok(answer.code == Some(0)
            && answer.out.contains("chooses from the sets global")
            && line("cluster1").contains("yes")
            && line("other").contains("it is not accepted"))
    })
    .await?;
    let missing = ground.writ(&["placement", "explain", "nothing"]).await?;
    ensure!(
        missing.code == Some(2) && missing.err.contains("read Placement default/nothing"),
        "{}",
        missing.err
    );
    Ok(())
}

/// `writ token bootstrap`, `writ install agent`, `writ accept`: the agent runs with the flags of its Deployment, as the
/// account that is installed, and needs the bootstrap kubeconfig no more once it is in.
async fn installed(kind: Kind) -> Result<()> {
    let ground = Ground::start(kind, &[]).await?;
    let bootstrap = ground.writ(&["token", "bootstrap", "--duration", "1h"]).await?;
    ensure!(bootstrap.code == Some(0), "{}", bootstrap.err);
    fs::write(ground.file("printed"), &bootstrap.out)?;
    write(
        ground.folder.path(),
        "spoke-admin",
        ground.fleet.cluster(1)?.kubeconfig(),
    )?;
    let install = ["install", "agent", "--cluster-name", "cluster1", "--apply"];
    let install = command(&install)
        .args(["--bootstrap-kubeconfig", &ground.file("printed")])
        .args(["--kubeconfig", &ground.file("spoke-admin")])
        .args(["-o", "json"])
        .output()
        .await?;
    ensure!(
        install.status.success(),
        "{}",
        String::from_utf8_lossy(&install.stderr)
    );
    let listed: Value = serde_json::from_slice(&install.stdout)?;
    let deployment = listed["items"].as_array().context("items")?;
    let deployment = deployment
        .iter()
        .find(|o| o["kind"] == "Deployment")
        .context("a Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    // What a kubelet does: the volume's Secret as files, where the flag looks for them.
    let volume = &pod["volumes"][0]["secret"];
    ensure!(
        volume["optional"] == true,
        "the pod must start without it: {volume}"
    );
    let secrets: Api<Secret> = Api::namespaced(ground.fleet.cluster(1)?.admin().await?, AGENT);
    let mounted = ground.folder.path().join("bootstrap-volume");
    let words = |field: &str| -> Result<&Vec<Value>> {
        let words = pod["containers"][0][field].as_array();
        words.with_context(|| field.to_owned())
    };
    let flags: Vec<String> = words("command")?
        .iter()
        .chain(words("args")?)
        .map(|arg| arg.as_str().unwrap_or_default())
        .map(|arg| arg.replace("/bootstrap/kubeconfig", &mounted.display().to_string()))
        .map(|arg| arg.replace("0.0.0.0:8080", "127.0.0.1:0"))
        .collect();
    let spoke = ground.file("spoke");
    let mut agent: Vec<&str> = flags.iter().map(String::as_str).collect();
    agent.extend(["--spoke-kubeconfig", &spoke, "--controllers", "registration"]);
    let log = ground.folder.path().join("agent.log");
    let running = spawn(&agent, log.clone())?;
    wait::until_true("the agent says what it waits for", || async {
        Ok(fs::read_to_string(&log)?.contains("bootstrap-hub-kubeconfig"))
    })
    .await?;
    let secret = secrets
        .get(volume["secretName"].as_str().context("a name")?)
        .await?;
    let data = secret.data.context("no data")?;
    fs::write(&mounted, &data.get("kubeconfig").context("no kubeconfig")?.0)?;
    wait::until("the request", || async {
        Ok(operator_actions::pending(&ground.admin, "cluster1").await?.pop())
    })
    .await?;
    let accepted = ground.writ(&["accept", "cluster1"]).await?;
    ensure!(accepted.code == Some(0), "{}{}", accepted.out, accepted.err);
    ground.wait_available("True").await?;
    drop(running);
    // A new pod after somebody tidied up: the identity of before is enough.
    fs::remove_file(&mounted)?;
    let log = ground.folder.path().join("again.log");
    let _running = spawn(&agent, log.clone())?;
    wait::until_true("the agent runs again", || async {
        let text = fs::read_to_string(&log)?;
        ensure!(!text.contains("waiting for"), "{text}");
        Ok(text.contains("ready"))
    })
    .await
}

/// A hub that signs nothing: the person who accepts hands the first token over.
async fn token(kind: Kind) -> Result<()> {
    let ground = Ground::start(kind, &["--registration-driver", "token"]).await?;
    let (first, spoke, kept) = (ground.file("first"), ground.file("spoke"), ground.file("kept"));
    let clusters: Api<ManagedCluster> = Api::all(ground.admin.clone());
    let cluster = serde_json::from_value(json!({"apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "metadata": {"name": "cluster1"}, "spec": {}}))?;
    clusters.create(&PostParams::default(), &cluster).await?;
    let accepted = ground
        .writ(&["accept", "cluster1", "--hub-kubeconfig-out", &first])
        .await?;
    ensure!(accepted.code == Some(0), "{}", accepted.err);
    let _agent = spawn(
        &[
            "agent",
            "--cluster-name",
            "cluster1",
            "--registration-driver",
            "token",
            "--bootstrap-kubeconfig",
            &first,
            "--hub-kubeconfig",
            &kept,
            "--spoke-kubeconfig",
            &spoke,
            "--controllers",
            "registration",
        ],
        ground.folder.path().join("agent.log"),
    )?;
    ground.wait_available("True").await
}
