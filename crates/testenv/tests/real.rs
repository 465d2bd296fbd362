//! The control plane itself: it starts, several at once, answers as RBAC says, and leaves nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use writ_testenv::{ControlPlane, Options, harness};

fn main() {
    harness::run(vec![
        harness::real("three_control_planes_start_in_parallel", three_in_parallel),
        harness::real("users_have_their_own_rights", users_have_their_own_rights),
        harness::real("data_outlives_a_restart", data_outlives_a_restart),
    ]);
}

async fn three_in_parallel() -> Result<()> {
    let start = || ControlPlane::start(Options::default());
    let (hub, one, two) = tokio::try_join!(start(), start(), start())?;
    for plane in [&hub, &one, &two] {
        let namespaces = Api::<Namespace>::all(plane.client()?)
            .list(&ListParams::default())
            .await?;
        ensure!(
            namespaces
                .iter()
                .any(|namespace| namespace.name_any() == "kube-system")
        );
    }
    ensure!(hub.url() != one.url());
    Ok(())
}

async fn users_have_their_own_rights() -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let alice = plane.client_as("alice", &["team-a"])?;
    let refused = Api::<Namespace>::all(alice)
        .list(&ListParams::default())
        .await
        .unwrap_err();
    ensure!(
        refused
            .to_string()
            .contains("User \"alice\" cannot list resource \"namespaces\""),
        "{refused}"
    );
    let (cert, key) = plane.client_certificate("bob", "team-b")?;
    ensure!(cert.contains("BEGIN CERTIFICATE") && key.contains("PRIVATE KEY"));
    Ok(())
}

async fn data_outlives_a_restart() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        controllers: false,
        data: Some(folder.path().into()),
        ..Options::default()
    };
    let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}}))?;
    let plane = ControlPlane::start(options.clone()).await?;
    Api::<ConfigMap>::namespaced(plane.client()?, "default")
        .create(&PostParams::default(), &map)
        .await?;
    drop(plane);
    let plane = ControlPlane::start(options).await?;
    Api::<ConfigMap>::namespaced(plane.client()?, "default")
        .get("kept")
        .await?;
    Ok(())
}
