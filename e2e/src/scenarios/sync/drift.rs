//! What happens between commits: drift, fights, repositories that do not answer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use writ_testenv::git_http::{self, Access};

use crate::{Fleet, at_once};

use super::support::{Case, Door, SYSTEM, apply, config_map, namespace, until, value};

/// The server is away for as many fetches as an hour has with the default period, only faster, and they are counted.
/// The sync says so once, goes on correcting, never asks more often than its period, and goes on when it is back.
pub async fn away_for_an_hour(fleet: Fleet) -> Result<()> {
    const FETCHES: u32 = 240;
    const PERIOD: Duration = Duration::from_millis(100);
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("away")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("away", "a", "1"))])?;
    let folder = case.repo.path();
    let access = Access {
        tls: false,
        credentials: None,
    };
    let served = git_http::serve(folder.parent().context("no folder")?.into(), access).await?;
    let door = Door::to(served.url.trim_start_matches("http://")).await?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let url = format!("http://{}/{name}", door.address);
    case.root_sync(
        "away",
        json!({ "spec": { "git": { "repo": url, "period": "100ms" }}}),
    )
    .await?;
    case.synced("away", &commit).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "away");
    door.close();
    let status = case
        .when("away", "the error", |status| {
            status["source"]["errors"][0]["code"] == "2004"
        })
        .await?;
    ensure!(status["lastSyncedCommit"] == commit.as_str(), "{status:#}");
    let version = async || -> Result<Option<String>> {
        Ok(case
            .syncs("RootSync", SYSTEM)
            .get("away")
            .await?
            .resource_version())
    };
    let reported = version().await?;
    let (before, started) = (door.knocks(), Instant::now());
    let failed = || door.knocks() - before;
    // Corrected at the beginning, in the middle and at the end of it.
    for part in 1..=3 {
        maps.delete("a", &DeleteParams::default()).await?;
        let deleted = Instant::now();
        until("a is back", || async { Ok(maps.get_opt("a").await?) }).await?;
        at_once("it was put back", deleted.elapsed())?;
        until("a third of the hour has passed", || async {
            Ok((failed() >= part * FETCHES / 3).then_some(()))
        })
        .await?;
    }
    let fastest = u32::try_from(started.elapsed().as_millis() / PERIOD.as_millis())? + 2;
    ensure!(
        failed() <= fastest,
        "{} fetches where {fastest} were due",
        failed()
    );
    // The same words are not written again.
    ensure!(version().await? == reported);
    ensure!(value(&maps.get("a").await?) == "1");
    let next = case
        .repo
        .commit("main", &[("a.yaml", config_map("away", "a", "2"))])?;
    door.open();
    let opened = Instant::now();
    let status = case.synced("away", &next).await?;
    at_once("it went on", opened.elapsed())?;
    ensure!(status["source"]["errors"].is_null(), "{status:#}");
    Ok(())
}

/// A server that takes the connection and says nothing stops neither drift correction nor a way back.
pub async fn silent_server(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("silent")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("silent", "a", "1"))])?;
    case.root_sync("silent", json!({})).await?;
    case.synced("silent", &commit).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let (asked, mut was_asked) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
            let _ = asked.send(()).await;
        }
    });
    let repo = format!("http://127.0.0.1:{port}/repo");
    case.root_sync("silent", json!({ "spec": { "git": { "repo": repo }}}))
        .await?;
    was_asked.recv().await.context("nobody asked the server")?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "silent");
    let started = Instant::now();
    for _ in 0..3 {
        maps.delete("a", &DeleteParams::default()).await?;
        until("a is back", || async { Ok(maps.get_opt("a").await?) }).await?;
    }
    at_once("drift did not wait for the server", started.elapsed())?;
    Ok(())
}

/// Somebody who changes an object again and again is named, and not answered at once any more.
pub async fn fight(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("fight")).await?;
    let commit = case.repo.commit(
        "main",
        &[
            ("a.yaml", config_map("fight", "a", "ours")),
            ("b.yaml", config_map("fight", "b", "ours")),
        ],
    )?;
    case.root_sync("fight", json!({})).await?;
    case.synced("fight", &commit).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "fight");
    let theirs = Patch::Merge(json!({ "data": { "key": "theirs" }}));
    let as_mallory = PatchParams {
        field_manager: Some("mallory".into()),
        ..PatchParams::default()
    };
    for _ in 0..6 {
        maps.patch("a", &as_mallory, &theirs).await?;
        until("a is corrected", || async {
            Ok((value(&maps.get("a").await?) == "ours").then_some(()))
        })
        .await?;
    }
    let status = case
        .when("fight", "the fight is reported", |status| {
            status["sync"]["errors"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|error| error["code"] == "2005")
        })
        .await?;
    let text = status["sync"]["errors"].to_string();
    ensure!(
        text.contains("\\\"mallory\\\"") && text.contains("ConfigMap fight/a"),
        "{text}"
    );
    // Still corrected, later; others at once.
    maps.patch("a", &as_mallory, &theirs).await?;
    maps.patch("b", &as_mallory, &theirs).await?;
    until("b is corrected", || async {
        Ok((value(&maps.get("b").await?) == "ours").then_some(()))
    })
    .await?;
    until("a is corrected in the end", || async {
        Ok((value(&maps.get("a").await?) == "ours").then_some(()))
    })
    .await?;
    Ok(())
}
