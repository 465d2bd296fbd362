//! What `writ install` prints, and that a real API server takes it.
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
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    apps::v1::Deployment,
    authentication::v1::TokenRequest,
    coordination::v1::Lease,
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
    config::AuthInfo,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use writ_fleet::{git::Repository, wait::until};
use writ_testenv::{ControlPlane, Options, harness};

fn main() {
    harness::run(vec![
        harness::plain("manifests_are_rendered", "binary", rendered),
        harness::real("a_real_server_takes_them", applied),
        harness::real("an_installed_hub_leads_and_keeps_leading", leads),
        harness::real("installed_syncs_sync_and_guard_roles", syncs),
    ]);
}

/// What an agent joins with.
const BOOTSTRAP: &str = "
clusters: [{name: hub, cluster: {server: https://hub.example.com}}]
contexts: [{name: hub, context: {cluster: hub, user: bootstrap}}]
users: [{name: bootstrap, user: {token: a-token}}]
current-context: hub
";

const PARTS: [&[&str]; 3] = [&["hub"], &["agent", "--cluster-name", "cluster1"], &["sync"]];

fn install(args: &[&str]) -> Result<support::Output> {
    support::run(
        Command::new(support::WRIT)
            .arg("install")
            .args(args)
            .env("WRIT_LOG", "warn"),
    )
}

/// The definitions in outline, as they are generated, and the rest in full: what may do what, and what runs.
async fn rendered() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bootstrap = folder.path().join("bootstrap");
    std::fs::write(&bootstrap, BOOTSTRAP)?;
    for part in PARTS {
        let mut args = [part, &["--image", "registry.example.com/writ:1"]].concat();
        if part[0] == "agent" {
            args.extend(["--bootstrap-kubeconfig", bootstrap.to_str().unwrap()]);
        }
        let output = install(&args)?;
        ensure!(output.code == 0, "{}", output.err);
        let mut outline = Vec::new();
        let mut full = Vec::new();
        for object in writ_runtime::yaml::documents::<Value>(&output.out)? {
            let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
            outline.push(format!("{} {}", kind.as_str().unwrap(), name.as_str().unwrap()));
            if kind != "CustomResourceDefinition" {
                full.push(writ_runtime::yaml::to_string(&object)?);
            }
        }
        insta::assert_snapshot!(
            format!("install_{}", part[0]),
            format!("{}\n\n{}", outline.join("\n"), full.join("---\n"))
        );
        // What runs is started with flags that this program knows.
        for text in full.iter().filter(|text| text.contains("kind: Deployment")) {
            let deployment: Value = writ_runtime::yaml::from_str(text)?;
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            ensure!(container["image"] == "registry.example.com/writ:1");
            let args: Vec<&str> = container["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_str().unwrap())
                .collect();
            // The image's own program, or the one for agents.
            let program = match container["command"].as_array() {
                None => support::WRIT,
                Some(words) => {
                    ensure!(words == &["writ-agent"]);
                    support::WRIT_AGENT
                }
            };
            let parsed = support::run(Command::new(program).args(&args).arg("--help"))?;
            ensure!(parsed.code == 0, "{args:?}: {}", parsed.err);
            let flags = args.iter().filter(|arg| arg.starts_with("--"));
            for flag in flags.filter_map(|arg| arg.split('=').next()) {
                ensure!(parsed.out.contains(flag), "{program} has no flag {flag}");
            }
        }
    }
    let nameless = install(&["agent"])?;
    ensure!(
        nameless.code == 2 && nameless.err.contains("--cluster-name"),
        "{}",
        nameless.err
    );
    Ok(())
}

async fn applied() -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let config = plane.kubeconfig_file().to_str().unwrap().to_owned();
    for part in PARTS {
        // Twice: an installation that is there is brought up to date.
        for _ in 0..2 {
            let output = install(&[part, &["--apply", "--kubeconfig", &config]].concat())?;
            ensure!(output.code == 0, "{part:?}: {}{}", output.out, output.err);
            ensure!(
                output.out.contains(&format!("deployment/writ-{}", part[0])),
                "{}",
                output.out
            );
        }
    }
    let deployments: Api<Deployment> = Api::all(plane.client()?);
    let found = deployments.list(&kube::api::ListParams::default()).await?;
    ensure!(found.items.len() == 3);
    Ok(())
}

/// A control plane on which a part is installed.
async fn installed(part: &str) -> Result<(ControlPlane, kube::Client)> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let config = plane.kubeconfig_file().to_str().unwrap().to_owned();
    let output = install(&[part, "--apply", "--kubeconfig", &config])?;
    ensure!(output.code == 0, "{}", output.err);
    let client = plane.client()?;
    Ok((plane, client))
}

/// A kubeconfig file with the token of that account and nothing else.
async fn as_account(plane: &ControlPlane, folder: &Path, namespace: &str, name: &str) -> Result<PathBuf> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client()?, namespace);
    let token = accounts
        .create_token_request(name, &PostParams::default(), &TokenRequest::default())
        .await?;
    let auth = AuthInfo {
        token: Some(token.status.unwrap().token.unwrap().into()),
        ..AuthInfo::default()
    };
    let file = folder.join(name);
    std::fs::write(&file, serde_json::to_vec(&plane.kubeconfig_with(auth))?)?;
    Ok(file)
}

/// The hub as it is installed: its account, its roles, its election.
async fn leads() -> Result<()> {
    let (plane, client) = installed("hub").await?;
    let folder = tempfile::tempdir()?;
    let namespace = "open-cluster-management-hub";
    let file = as_account(&plane, folder.path(), namespace, "writ-hub").await?;
    let mut hub = Command::new(support::WRIT)
        .args(["hub", "--webhooks", "off", "--kubeconfig"])
        .arg(&file)
        .env("WRIT_LOG", "warn")
        .spawn()?;
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let renewals = async {
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let lease = leases.get_opt("writ-hub").await?;
            let renewed = lease.and_then(|lease| lease.spec?.renew_time);
            if renewed.is_some() && seen.last() != Some(&renewed) {
                seen.push(renewed);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    let renewed = tokio::time::timeout(std::time::Duration::from_mins(1), renewals).await;
    hub.kill()?;
    hub.wait()?;
    renewed.map_err(|_| anyhow::anyhow!("the lease is not renewed"))?
}

/// The syncs as they are installed: what the Deployment says is started with its account, and a RootSync syncs. With
/// `--require-bind` added, as an administrator adds it, nobody gives a RootSync more than he could bind himself.
async fn syncs() -> Result<()> {
    let (plane, client) = installed("sync").await?;
    let folder = tempfile::tempdir()?;
    let system = "config-management-system";
    let file = as_account(&plane, folder.path(), system, "writ-sync").await?;
    let deployment = Api::<Deployment>::namespaced(client.clone(), system)
        .get("writ-sync")
        .await?;
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    // The pod's volume is a folder here, and its ports are free ones.
    let cache = format!("--cache={}", folder.path().join("cache").display());
    let args = pod.containers[0].args.clone().unwrap().into_iter().map(|arg| {
        match arg.split_once('=').map_or(&*arg, |(flag, _)| flag) {
            "--cache" => cache.clone(),
            flag @ ("--health-address" | "--webhook-listen") => format!("{flag}=127.0.0.1:0"),
            _ => arg,
        }
    });
    let mut sync = Command::new(support::WRIT)
        .args(args)
        .args(["--require-bind", "--kubeconfig"])
        .arg(&file)
        .env("WRIT_LOG", "warn")
        .spawn()?;
    let synced = a_root_sync(&plane, client).await;
    sync.kill()?;
    sync.wait()?;
    synced
}

async fn a_root_sync(plane: &ControlPlane, admin: kube::Client) -> Result<()> {
    let system = "config-management-system";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: made}\n";
    let repository = Repository::new()?;
    let commit = repository.commit("main", &[("a.yaml", map)])?;
    let kind = GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync");
    let resource = ApiResource::from_gvk(&kind);
    let root_sync: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
        "metadata": { "name": "first", "namespace": system },
        "spec": { "sourceFormat": "unstructured",
            "git": { "repo": repository.url(), "branch": "main", "auth": "none" }},
    }))?;
    // The gate is up before anything is worked on.
    let gates: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    until("the gate", || async {
        let gate = gates.get_opt("writ-sync").await?;
        let hooks = gate.and_then(|gate| gate.webhooks).unwrap_or_default();
        Ok(hooks
            .iter()
            .any(|hook| hook.client_config.ca_bundle.is_some())
            .then_some(()))
    })
    .await?;
    let rules = serde_json::json!([{ "apiGroups": ["configsync.gke.io"], "resources": ["rootsyncs"], "verbs": ["*"] }]);
    let subjects =
        serde_json::json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "erin" }]);
    for object in [
        serde_json::json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "erin" }, "rules": rules }),
        serde_json::json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "erin" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "erin" }, "subjects": subjects }),
    ] {
        writ_fleet::manifests::apply(&admin, &object.to_string()).await?;
    }
    let erin = plane.client_as("erin", &["system:authenticated"])?;
    let hers: Api<DynamicObject> = Api::namespaced_with(erin, system, &resource);
    // The API server hears a moment later of her rights, and of the gate.
    let trial = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("she is refused by the gate", || async {
        let refused = hers.create(&trial, &root_sync).await.err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        ensure!(
            refused.contains("erin may not bind ClusterRole cluster-admin"),
            "{refused}"
        );
        Ok(Some(()))
    })
    .await?;
    let syncs: Api<DynamicObject> = Api::namespaced_with(admin.clone(), system, &resource);
    syncs.create(&PostParams::default(), &root_sync).await?;
    until("the commit is applied", || async {
        let status = syncs.get("first").await?.data["status"].clone();
        Ok((status["lastSyncedCommit"] == commit.as_str()).then_some(()))
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin, "made");
    ensure!(maps.get_opt("a").await?.is_some());
    Ok(())
}
