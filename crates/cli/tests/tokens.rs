//! `writ token` and `writ kubeconfig`, as a person uses them: kubectl reaches a managed cluster as an account.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use writ_api::{authentication::ManagedServiceAccount, rbac::ClusterPermission};
use writ_fleet::{Fleet, Kind, wait};
use writ_testenv::{Assets, harness};

fn main() {
    // kubectl comes with the control plane, so both kinds of cluster need it.
    harness::run(vec![
        harness::real(
            "kubectl_uses_the_token_of_an_account_on_an_embedded_cluster",
            || kubectl(Kind::Embedded),
        ),
        harness::real("kubectl_uses_the_token_of_an_account_on_a_real_cluster", || {
            kubectl(Kind::Real)
        }),
    ]);
}

struct Output {
    success: bool,
    out: String,
    err: String,
}

async fn run(mut command: Command) -> Result<Output> {
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(Output {
        success: output.status.success(),
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

async fn writ(hub: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writ"));
    command.args(args).env("KUBECONFIG", hub);
    run(command).await
}

async fn kubectl(kind: Kind) -> Result<()> {
    let fleet = Fleet::start(kind, 1).await?;
    let controllers = ["cluster_permission", "managed_service_account", "registration"];
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: controllers.map(str::to_owned).into(),
            ..writ_hub::Options::default()
        })
        .await?;
    fleet.accept(1).await?;
    let _agent = fleet.run_agent(1, writ_agent::Options::default()).await?;
    let folder = tempfile::tempdir()?;
    let (hub, robot) = (folder.path().join("hub"), folder.path().join("robot"));
    fs::write(&hub, writ_runtime::yaml::to_string(fleet.hub.kubeconfig())?)?;

    let missing = writ(&hub, &["token", "get", "cluster1", "robot"]).await?;
    ensure!(!missing.success && missing.out.is_empty(), "{}", missing.out);
    let words = "there is no ManagedServiceAccount robot in namespace cluster1 of the hub";
    ensure!(missing.err.contains(words), "{}", missing.err);

    let admin = fleet.hub.admin().await?;
    let account: ManagedServiceAccount = serde_json::from_value(json!({
        "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
        "metadata": {"name": "robot"}, "spec": {"rotation": {"validity": "24h"}},
    }))?;
    Api::namespaced(admin.clone(), "cluster1")
        .create(&PostParams::default(), &account)
        .await?;
    let subject = json!({"kind": "ManagedServiceAccount", "name": "robot", "apiGroup": "authentication.open-cluster-management.io"});
    let permission: ClusterPermission = serde_json::from_value(json!({
        "apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
        "metadata": {"name": "robot"}, "spec": {
            "roles": [{"namespace": "default", "rules": [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["list"]}]}],
            "roleBindings": [{"namespace": "default", "roleRef": {"kind": "Role"}, "subject": subject}],
        },
    }))?;
    Api::namespaced(admin, "cluster1")
        .create(&PostParams::default(), &permission)
        .await?;
    let credential = wait::until("the token", || async {
        let output = writ(&hub, &["token", "get", "cluster1", "robot"]).await?;
        ensure!(output.success, "{}", output.err);
        Ok(Some(serde_json::from_str::<Value>(&output.out)?))
    })
    .await?;
    ensure!(
        credential["kind"] == "ExecCredential"
            && credential["apiVersion"] == "client.authentication.k8s.io/v1"
    );
    let expires = credential["status"]["expirationTimestamp"]
        .as_str()
        .unwrap_or_default();
    let left = expires
        .parse::<jiff::Timestamp>()?
        .duration_since(jiff::Timestamp::now());
    ensure!(left > jiff::SignedDuration::from_hours(23), "{expires}");
    let token = credential["status"]["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    ensure!(token.matches('.').count() == 2);

    let config = writ(&hub, &["kubeconfig", "cluster1", "--service-account", "robot"]).await?;
    ensure!(config.success, "{}", config.err);
    ensure!(!config.out.contains(&token), "the kubeconfig holds the token");
    fs::write(&robot, &config.out)?;

    // As a user would: the kubeconfig is the only one that kubectl knows, in the variable that `writ` reads too.
    let ask = async |what: &[&str]| {
        let mut command = Command::new(Assets::find()?.binary("kubectl"));
        command
            .args(what)
            .args(["-n", "default"])
            .env("KUBECONFIG", &robot);
        run(command).await
    };
    wait::until_true("kubectl lists what is granted", || async {
        let answer = ask(&["get", "configmaps", "-o", "name"]).await?;
        ensure!(answer.success, "{}", answer.err);
        Ok(answer.out.contains("configmap/kube-root-ca.crt"))
    })
    .await?;
    let pods = ask(&["get", "pods"]).await?;
    ensure!(
        pods.success && pods.err.contains("No resources found"),
        "{}{}",
        pods.out,
        pods.err
    );
    let secrets = ask(&["get", "secrets"]).await?;
    ensure!(
        !secrets.success && secrets.err.contains("Forbidden"),
        "{}",
        secrets.err
    );
    Ok(())
}
