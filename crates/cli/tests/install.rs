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

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;
use writ_testenv::{ControlPlane, Options, harness};

fn main() {
    harness::run(vec![
        harness::plain("manifests_are_rendered", "binary", rendered),
        harness::real("a_real_server_takes_them", applied),
        harness::real("an_installed_hub_leads_and_keeps_leading", leads),
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
            let parsed = support::run(Command::new(support::WRIT).args(&args).arg("--help"))?;
            ensure!(parsed.code == 0, "{args:?}: {}", parsed.err);
            for flag in args.iter().skip(1).filter_map(|arg| arg.split('=').next()) {
                ensure!(parsed.out.contains(flag), "{} has no flag {flag}", args[0]);
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
    let deployments: kube::Api<k8s_openapi::api::apps::v1::Deployment> = kube::Api::all(plane.client()?);
    let found = deployments.list(&kube::api::ListParams::default()).await?;
    ensure!(found.items.len() == 3);
    Ok(())
}

/// The hub as it is installed: its account, its roles, its election.
async fn leads() -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let config = plane.kubeconfig_file().to_str().unwrap().to_owned();
    let output = install(&["hub", "--apply", "--kubeconfig", &config])?;
    ensure!(output.code == 0, "{}", output.err);
    let client = plane.client()?;
    let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
        kube::Api::namespaced(client.clone(), "open-cluster-management-hub");
    let request = k8s_openapi::api::authentication::v1::TokenRequest::default();
    let token = accounts
        .create_token_request("writ-hub", &kube::api::PostParams::default(), &request)
        .await?;
    let token = token.status.unwrap().token.unwrap();
    let auth = kube::config::AuthInfo {
        token: Some(token.into()),
        ..kube::config::AuthInfo::default()
    };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("hub");
    std::fs::write(&file, serde_json::to_vec(&plane.kubeconfig_with(auth))?)?;
    let mut hub = Command::new(support::WRIT)
        .args(["hub", "--webhooks", "off", "--kubeconfig"])
        .arg(&file)
        .env("WRIT_LOG", "warn")
        .spawn()?;
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(client, "open-cluster-management-hub");
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
