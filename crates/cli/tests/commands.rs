//! The binary, as a person runs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::wait::{await_condition, conditions},
};
use serde_json::json;
use writ_testenv::{ControlPlane, Options, harness};

fn main() {
    harness::run(vec![
        harness::plain("wrong_kubeconfigs_are_explained", "binary", wrong_kubeconfigs),
        harness::plain("an_unreachable_server_is_explained", "binary", unreachable),
        harness::real("rights_are_answered_and_explained", rights),
        harness::real("lists_look_like_kubectl", lists),
    ]);
}

struct Output {
    code: i32,
    out: String,
    err: String,
}

async fn writ(kubeconfig: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_writ"));
    command
        .args(args)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

async fn wrong_kubeconfigs() -> Result<()> {
    let missing = writ(Path::new("/nowhere/config"), &["get", "clusters"]).await?;
    ensure!(
        missing.code == 2 && missing.err.contains("cannot read the kubeconfig /nowhere/config"),
        "{}",
        missing.err
    );
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config");
    fs::write(
        &file,
        "contexts: [{name: one, context: {cluster: c}}, {name: two, context: {cluster: c}}]",
    )?;
    let unknown = writ(&file, &["get", "clusters", "--context", "three"]).await?;
    ensure!(
        unknown
            .err
            .contains("there is no context \"three\" in the kubeconfig; there are: one, two"),
        "{}",
        unknown.err
    );
    let kind = writ(&file, &["get", "clustrs"]).await?;
    ensure!(
        kind.code == 2
            && kind
                .err
                .contains("there is no kind \"clustrs\"; there are: clusters,"),
        "{}",
        kind.err
    );
    Ok(())
}

async fn unreachable() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config");
    let config = json!({
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    });
    fs::write(&file, config.to_string())?;
    let output = writ(&file, &["get", "clusters"]).await?;
    ensure!(output.code == 2, "{}", output.err);
    ensure!(
        output
            .err
            .contains("read managedclusters: the API server cannot be reached"),
        "{}",
        output.err
    );
    ensure!(
        output.err.contains("does the kubeconfig name the right address?"),
        "{}",
        output.err
    );
    Ok(())
}

async fn start() -> Result<ControlPlane> {
    ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await
}

async fn rights() -> Result<()> {
    let plane = start().await?;
    let client = plane.client()?;
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "alice-reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }))?;
    let api: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(client, "default");
    api.create(&PostParams::default(), &binding).await?;
    let config = plane.kubeconfig_file();

    let yes = writ(
        config,
        &["can-i", "list", "pods", "-n", "default", "--as", "user:alice"],
    )
    .await?;
    ensure!(
        yes.code == 0 && yes.out.contains("yes") && yes.out.contains("alice-reads"),
        "{}{}",
        yes.out,
        yes.err
    );
    let no = writ(
        config,
        &["can-i", "delete", "pods", "-n", "default", "--as", "user:alice"],
    )
    .await?;
    ensure!(
        no.code == 1 && no.out.contains("lacks the verb delete"),
        "{}{}",
        no.out,
        no.err
    );
    let elsewhere = writ(config, &["why", "list", "pods", "--as", "user:alice"]).await?;
    ensure!(
        elsewhere
            .out
            .contains("On this cluster, user:alice may not list pods in all namespaces."),
        "{}",
        elsewhere.out
    );
    ensure!(
        elsewhere.out.contains("lacks: a binding for all namespaces"),
        "{}",
        elsewhere.out
    );
    let who = writ(
        config,
        &[
            "who-can",
            "list",
            "deployments.apps",
            "-n",
            "default",
            "-o",
            "json",
        ],
    )
    .await?;
    let holders: serde_json::Value = serde_json::from_str(&who.out)?;
    let names: Vec<_> = holders
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|h| h["subject"]["name"].as_str())
        .collect();
    ensure!(
        names.contains(&"alice") && names.contains(&"system:masters"),
        "{names:?}"
    );
    let unknown = writ(config, &["can-i", "get", "podz", "--as", "user:alice"]).await?;
    ensure!(
        unknown.code == 2 && unknown.err.contains("the server has no resource \"podz\""),
        "{}",
        unknown.err
    );
    let nowhere = writ(
        config,
        &["can-i", "get", "pods", "--as", "alice", "--cluster", "cluster7"],
    )
    .await?;
    ensure!(
        nowhere.err.contains("cluster cluster7 cannot be reached") && nowhere.err.contains("--account"),
        "{}",
        nowhere.err
    );
    Ok(())
}

async fn lists() -> Result<()> {
    let plane = start().await?;
    let config = plane.kubeconfig_file();
    let missing = writ(config, &["get", "clusters"]).await?;
    ensure!(
        missing.code == 2
            && missing
                .err
                .contains("the server does not serve this kind; is it a hub?"),
        "{}",
        missing.err
    );

    let client = plane.client()?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in writ_api::crds()
        .iter()
        .filter(|crd| crd.spec.names.kind == "ManagedCluster")
    {
        crds.patch(&crd.name_any(), &PatchParams::apply("test"), &Patch::Apply(crd))
            .await?;
        await_condition(crds.clone(), &crd.name_any(), conditions::is_crd_established()).await?;
    }
    let empty = writ(config, &["get", "clusters"]).await?;
    ensure!(empty.code == 0 && empty.err.contains("found"), "{}", empty.err);
    let cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "cluster1"}, "spec": {"hubAcceptsClient": true},
    }))?;
    Api::<writ_api::cluster::ManagedCluster>::all(client)
        .create(&PostParams::default(), &cluster)
        .await?;
    let table = writ(config, &["get", "clusters"]).await?;
    ensure!(
        table.out.starts_with("NAME") && table.out.contains("\ncluster1 "),
        "{}",
        table.out
    );
    let name = writ(config, &["get", "clusters", "-o", "name"]).await?;
    ensure!(
        name.out == "managedclusters.cluster.open-cluster-management.io/cluster1\n",
        "{}",
        name.out
    );

    let refused_config = plane.kubeconfig_as("mallory", &[]);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("config");
    fs::write(&file, serde_json::to_vec(&refused_config)?)?;
    let refused = writ(&file, &["get", "clusters"]).await?;
    ensure!(
        refused
            .err
            .contains("refused: managedclusters.cluster.open-cluster-management.io is forbidden"),
        "{}",
        refused.err
    );
    Ok(())
}
