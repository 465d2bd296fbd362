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
        harness::plain("every_command_fails_in_words", "embedded", words),
        harness::plain("what_needs_no_server_answers", "binary", alone),
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

/// The commands that talk to an API server.
const COMMANDS: [&str; 16] = [
    "get clusters",
    "get clusters cluster1 -o json",
    "describe cluster cluster1",
    "grant --to user:alice --role view --cluster cluster1",
    "revoke --from user:alice --role view --cluster cluster1",
    "can-i list pods --as user:alice --all",
    "who-can list pods --all",
    "why list pods --as account:robot --all",
    "accept cluster1",
    "deny cluster1",
    "detach cluster1",
    "placement explain web",
    "token get cluster1 robot",
    "token bootstrap",
    "kubeconfig cluster1 --service-account robot",
    "install hub --no-crds --apply",
];

/// How an error looks that nobody put into words.
const RAW: [&str; 6] = [
    "ApiError",
    "ServiceError",
    "HyperError",
    "Status {",
    "Error(",
    "os error",
];

/// An embedded server without any definition: nothing of a hub is there, and mallory may do nothing.
async fn words() -> Result<()> {
    let server = writ_apiserver::Server::builder().port(0).start().await?;
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name);
    let admin = kube::config::Kubeconfig::from_yaml(&server.kubeconfig()?)?;
    fs::write(file("admin"), serde_json::to_vec(&admin)?)?;
    let mut mallory = admin.clone();
    for user in mallory
        .auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut())
    {
        user.impersonate = Some("mallory".into());
    }
    fs::write(file("mallory"), serde_json::to_vec(&mallory)?)?;
    let (mut gone, mut stranger) = (admin.clone(), admin);
    for cluster in gone
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        cluster.server = Some("https://127.0.0.1:1".into());
    }
    fs::write(file("gone"), serde_json::to_vec(&gone)?)?;
    // The CA of somebody else.
    let other = writ_apiserver::Server::builder().port(0).start().await?;
    let other = kube::config::Kubeconfig::from_yaml(&other.kubeconfig()?)?;
    let ca = other.clusters[0]
        .cluster
        .as_ref()
        .unwrap()
        .certificate_authority_data
        .clone();
    for cluster in stranger
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        cluster.certificate_authority_data.clone_from(&ca);
    }
    fs::write(file("stranger"), serde_json::to_vec(&stranger)?)?;
    fs::write(file("broken"), "contexts: {")?;

    // What is wrong, and what every command says of it. Discovery is open to all, and needs a server.
    let rows: [(&str, &[&str]); 5] = [
        ("broken", &["cannot read the kubeconfig"]),
        (
            "gone",
            &[
                "the API server cannot be reached",
                "does the kubeconfig name the right address?",
            ],
        ),
        (
            "stranger",
            &["the API server is not who the kubeconfig says", "hold the CA"],
        ),
        (
            "mallory",
            &["refused: ", "forbidden", "ask for a role that allows it"],
        ),
        ("admin", &["the server does not serve this kind; is it a hub?"]),
    ];
    for (config, wanted) in rows {
        for command in COMMANDS {
            let core = [
                "token bootstrap",
                "install hub --no-crds --apply",
                "token get cluster1 robot",
            ];
            if config == "admin" && (core.contains(&command) || command.starts_with("kubeconfig")) {
                // They ask for kinds of Kubernetes itself.
                continue;
            }
            let args: Vec<&str> = command.split_whitespace().collect();
            let output = writ(&file(config), &args).await?;
            ensure!(
                output.code == 2 && wanted.iter().all(|wanted| output.err.contains(wanted)),
                "{config}: writ {command}: {}\n{}",
                output.code,
                output.err
            );
            let raw = RAW.iter().find(|raw| output.err.contains(**raw));
            // The system's own words about a connection are worth having.
            ensure!(
                raw.is_none_or(|raw| *raw == "os error"),
                "{config}: writ {command} says {raw:?}:\n{}",
                output.err
            );
        }
    }
    let missing = writ(&file("admin"), &["token", "bootstrap"]).await?;
    ensure!(
        missing.code == 2 && missing.err.contains("is this a hub? `writ install hub`"),
        "{}",
        missing.err
    );
    Ok(())
}

/// The commands that talk to nobody, and the server itself.
async fn alone() -> Result<()> {
    let run = |args: &'static [&'static str]| async move {
        let mut command = Command::new(env!("CARGO_BIN_EXE_writ"));
        command.args(args);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "{args:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let version = run(&["version"]).await?;
    ensure!(
        version == format!("writ {}\n", env!("CARGO_PKG_VERSION")),
        "{version}"
    );
    let json: serde_json::Value = serde_json::from_str(&run(&["version", "-o", "json"]).await?)?;
    ensure!(json["version"] == env!("CARGO_PKG_VERSION"), "{json}");
    let crds = writ_runtime::yaml::documents::<CustomResourceDefinition>(&run(&["crds"]).await?)?;
    ensure!(crds.len() == writ_api::crds().len(), "{}", crds.len());
    let names = run(&["crds", "-o", "name"]).await?;
    ensure!(
        names.contains("customresourcedefinition.apiextensions.k8s.io/clusterpermissions."),
        "{names}"
    );
    for (shell, wanted) in [
        ("bash", "_writ()"),
        ("zsh", "#compdef writ"),
        ("fish", "complete -c writ"),
    ] {
        let script = match shell {
            "bash" => run(&["completion", "bash"]).await?,
            "zsh" => run(&["completion", "zsh"]).await?,
            _ => run(&["completion", "fish"]).await?,
        };
        ensure!(script.contains(wanted), "{shell}: {script:.200}");
    }

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kubeconfig");
    let mut server = tokio::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["apiserver", "--kubeconfig-out"])
        .arg(&file)
        .kill_on_drop(true)
        .spawn()?;
    writ_fleet::wait::until_true("the server's kubeconfig", || async { Ok(file.exists()) }).await?;
    let yes = writ(&file, &["can-i", "list", "pods", "--as", "group:system:masters"]).await?;
    ensure!(yes.code == 0, "{}", yes.err);
    let id = server.id().unwrap().to_string();
    ensure!(Command::new("kill").args(["-TERM", &id]).status()?.success());
    ensure!(server.wait().await?.success(), "it ends well when it is told to");
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
    // A definition is established a moment before its kind is served.
    let empty = writ_fleet::wait::until("the kind is served", || async {
        let empty = writ(config, &["get", "clusters"]).await?;
        ensure!(empty.code == 0, "{}", empty.err);
        Ok(Some(empty))
    })
    .await?;
    ensure!(empty.err.contains("found"), "{}", empty.err);
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
