//! What the long-running commands tell about themselves, and how they end, on both kinds of cluster.
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

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::coordination::v1::Lease,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::process::{Child, Command};
use writ_fleet::{Fleet, Kind, wait};
use writ_hub::registration::operator_actions;
use writ_testenv::harness;

use crate::ground::{Ground, HUB, spawn};

fn main() {
    harness::run(vec![
        harness::plain("they_say_what_is_off_and_end_when_told", "embedded", || {
            whole(Kind::Embedded)
        }),
        harness::real("they_say_what_is_off_and_end_when_told", || whole(Kind::Real)),
    ]);
}

async fn whole(kind: Kind) -> Result<()> {
    let fleet = Fleet::start(kind, 1).await?;
    forget_executor(&fleet).await?;
    let mut ground = Ground::on(fleet, &["--health-address", "127.0.0.1:0"]).await?;
    let agent = ground.file("agent.log");
    let (bootstrap, spoke, kept) = (
        ground.file("bootstrap"),
        ground.file("spoke"),
        ground.file("kept"),
    );
    let mut running = spawn(
        &[
            "writ-agent",
            "--cluster-name",
            "cluster1",
            "--bootstrap-kubeconfig",
            &bootstrap,
            "--hub-kubeconfig",
            &kept,
            "--spoke-kubeconfig",
            &spoke,
            "--health-address",
            "127.0.0.1:0",
            "--controllers",
            "registration,work",
        ],
        (&agent).into(),
    )?;
    wait::until("the request", || async {
        Ok(operator_actions::pending(&ground.admin, "cluster1").await?.pop())
    })
    .await?;
    ensure!(ground.writ(&["accept", "cluster1"]).await?.code == Some(0));
    ground.wait_available("True").await?;

    let hub = ground.file("hub.log");
    for log in [&hub, &agent] {
        wait::until_true(&format!("{log} names the feature that is off"), || async {
            let said = fs::read_to_string(log)?;
            Ok(
                said.contains("manifestworks.work.open-cluster-management.io v1 does not know spec.executor")
                    && said.contains("the executor of a work"),
            )
        })
        .await?;
    }
    for (log, lines) in [
        (
            &hub,
            [
                "writ_reconciles_total{controller=\"registration\",result=\"ok\"}",
                "writ_requests_total{server=\"hub\",method=\"POST\",code=\"201\"}",
            ],
        ),
        (
            &agent,
            [
                "writ_requests_total{server=\"hub\",method=\"GET\",code=\"200\"}",
                "writ_requests_total{server=\"spoke\",method=\"GET\",code=\"200\"}",
            ],
        ),
    ] {
        let told = metrics(Path::new(log)).await?;
        for line in lines {
            ensure!(told.lines().any(|told| told.starts_with(line)), "{line}: {told}");
        }
    }

    let leases: Api<Lease> = Api::namespaced(ground.admin.clone(), HUB);
    let holder = async || -> Result<Option<String>> {
        let lease = leases.get("writ-hub").await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        Ok(holder.filter(|holder| !holder.is_empty()))
    };
    ensure!(holder().await?.is_some(), "nobody leads");
    terminate(&mut running).await?;
    terminate(&mut ground.hub).await?;
    // The next replica need not wait for the lease to run out.
    ensure!(holder().await?.is_none(), "the lease was not released");
    Ok(())
}

/// An older definition, as a hub has that was not brought up to date.
async fn forget_executor(fleet: &Fleet) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(fleet.hub.admin().await?);
    let older = json!([{"op": "remove",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/executor"}]);
    api.patch(
        "manifestworks.work.open-cluster-management.io",
        &PatchParams::default(),
        &Patch::<()>::Json(serde_json::from_value(older)?),
    )
    .await?;
    Ok(())
}

/// What a process says at `/metrics`; its log names the address.
async fn metrics(log: &Path) -> Result<String> {
    let address = wait::until("the address", || async {
        let said = fs::read_to_string(log)?;
        let rest = said.split_once("health on http://").map(|(_, rest)| rest);
        Ok(rest.and_then(|rest| Some(rest.split_whitespace().next()?.to_owned())))
    })
    .await?;
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    ensure!(
        told.contains("application/openmetrics-text") && told.ends_with("# EOF\n"),
        "{told}"
    );
    Ok(told)
}

/// What a kubelet does: the process is told, and ends by itself.
async fn terminate(process: &mut Child) -> Result<()> {
    let pid = process.id().context("it has ended already")?;
    let told = Command::new("kill").arg(pid.to_string()).status().await?;
    ensure!(told.success());
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), process.wait()).await??;
    ensure!(ended.success(), "{ended}");
    Ok(())
}
