//! What happens between commits: drift, fights, repositories that do not answer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use writ_testenv::git_http::{self, Access};

use crate::{Fleet, at_once};

use super::support::{Case, Door, SYSTEM, apply, condition, config_map, namespace, until, value};

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
    // A fetch that was cut off says something else than one that was never answered, and the manager may be late with
    // what it says: from when nothing was written for a few fetches, all is said.
    let reported = until("a few fetches fail and nothing is written", || async {
        let (before, knocks) = (version().await?, door.knocks());
        until("a few fetches have failed", || async {
            Ok((door.knocks() >= knocks + 5).then_some(()))
        })
        .await?;
        Ok((version().await? == before).then_some(before))
    })
    .await?;
    let started = Instant::now();
    let before = door.knocks();
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
    let fetches = failed();
    let fastest = u32::try_from(started.elapsed().as_millis() / PERIOD.as_millis())? + 2;
    ensure!(fetches <= fastest, "{fetches} fetches where {fastest} were due");
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
    // Nothing was read for this spec yet, and nobody says so.
    let generation = case
        .syncs("RootSync", SYSTEM)
        .get("silent")
        .await?
        .metadata
        .generation;
    let status = case
        .when("silent", "the source is being read", |status| {
            let syncing = condition(status, "Syncing");
            syncing["status"] == "True" && syncing["reason"] == "Source"
        })
        .await?;
    let syncing = condition(&status, "Syncing");
    ensure!(syncing["observedGeneration"].as_i64() == generation, "{status:#}");
    ensure!(status["sync"]["commit"] == commit.as_str(), "{status:#}");
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

/// A commit that changes no object writes none; nor does a manager that starts again, with or without a new commit.
pub async fn nothing_to_do(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("still")).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "still");
    let versions = async || -> Result<Vec<(String, Option<String>)>> {
        let all = maps.list(&ListParams::default()).await?;
        let ours = all.into_iter().filter(|map| map.name_any().starts_with("map-"));
        Ok(ours.map(|map| (map.name_any(), map.resource_version())).collect())
    };
    let mut files: Vec<(String, String)> = (0..20)
        .map(|n| (format!("{n}.yaml"), config_map("still", &format!("map-{n}"), "1")))
        .collect();
    let mut commit = |more: Option<&str>| {
        files.extend(more.map(|name| (name.to_owned(), "nothing".to_owned())));
        let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (&**path, text.clone())).collect();
        case.repo.commit("main", &files)
    };
    let first = commit(None)?;
    case.root_sync("still", json!({})).await?;
    case.synced("still", &first).await?;
    let before = versions().await?;
    ensure!(before.len() == 20, "{before:?}");
    let second = commit(Some("README.md"))?;
    case.synced("still", &second).await?;
    ensure!(versions().await? == before, "a commit that changes nothing wrote");
    // What changed while nobody looked is found by the one that starts.
    let mut third = String::new();
    case.restart(async {
        third = commit(Some("MORE.md"))?;
        maps.delete("map-7", &DeleteParams::default()).await?;
        Ok(())
    })
    .await?;
    case.synced("still", &third).await?;
    until("what was deleted is back", || async {
        maps.get_opt("map-7").await.map_err(Into::into)
    })
    .await?;
    let others = |all: Vec<(String, Option<String>)>| -> Vec<_> {
        all.into_iter().filter(|(name, _)| name != "map-7").collect()
    };
    ensure!(
        others(versions().await?) == others(before),
        "a restart wrote what was as declared"
    );
    Ok(())
}

/// What a restart finds as it was reported is not reported again; what it cannot find out stands.
pub async fn restart(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("again")).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "again");
    let good = ("a.yaml", config_map("again", "a", "1"));
    let first = case.repo.commit("main", std::slice::from_ref(&good))?;
    case.root_sync("again", json!({})).await?;
    case.synced("again", &first).await?;
    case.when("again", "the manager has told its part", |status| {
        condition(status, "RolesBound")["reason"] == "ClusterAdmin"
    })
    .await?;
    let version = async || -> Result<Option<String>> {
        let sync = case.syncs("RootSync", SYSTEM).get("again").await?;
        Ok(sync.resource_version())
    };
    // Read while nobody writes.
    let mut before = None;
    case.restart(async {
        before = version().await?;
        maps.delete("a", &DeleteParams::default()).await?;
        Ok(())
    })
    .await?;
    let back = async || {
        until("what was deleted is back", || async {
            maps.get_opt("a").await.map_err(Into::into)
        })
        .await
    };
    // That it is put back a second time shows that the one that started has done and reported its first pass.
    back().await?;
    maps.delete("a", &DeleteParams::default()).await?;
    back().await?;
    ensure!(version().await? == before, "a restart rewrote the status");

    // An object that is refused, and a repository that is away when it starts: what was known stands.
    let bad = ("bad.yaml", config_map("again", "Not_A_Name", "1"));
    let second = case.repo.commit("main", &[good, bad])?;
    let status = case
        .when("again", "the refusal", |status| {
            status["sync"]["commit"] == second.as_str() && status["sync"]["errors"][0]["code"] == "2010"
        })
        .await?;
    let away = case.repo.path().with_extension("away");
    case.restart(async { std::fs::rename(case.repo.path(), &away).map_err(Into::into) })
        .await?;
    let after = case
        .when("again", "the missing repository is reported", |status| {
            status["source"]["errors"][0]["code"] == "2004"
        })
        .await?;
    ensure!(after["sync"] == status["sync"], "{after:#}");
    ensure!(after["source"]["commit"] == second.as_str(), "{after:#}");
    let syncing = condition(&after, "Syncing");
    let text = syncing["message"].as_str().unwrap_or_default();
    ensure!(
        syncing["reason"] == "Source" && text.contains("KNV2004"),
        "{after:#}"
    );
    std::fs::rename(&away, case.repo.path())?;
    let third = case
        .repo
        .commit("main", &[("a.yaml", config_map("again", "a", "2"))])?;
    case.synced("again", &third).await?;
    Ok(())
}

/// `managed: disabled` gives an object up, `mutation: ignore` makes it once, and both say so in Git only.
pub async fn left_alone(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("alone")).await?;
    let annotated = |name: &str, value: &str, annotation: &str| {
        config_map("alone", name, value).replace(
            "\n  namespace:",
            &format!("\n  annotations: {{{annotation}}}\n  namespace:"),
        )
    };
    let ignore = "client.lifecycle.config.k8s.io/mutation: ignore";
    let first = case.repo.commit(
        "main",
        &[
            ("free.yaml", config_map("alone", "free", "1")),
            ("once.yaml", annotated("once", "1", ignore)),
        ],
    )?;
    case.root_sync("alone", json!({})).await?;
    case.synced("alone", &first).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "alone");
    let theirs = Patch::Merge(json!({ "data": { "key": "theirs" }}));
    maps.patch("once", &PatchParams::default(), &theirs).await?;
    let second = case.repo.commit(
        "main",
        &[
            (
                "free.yaml",
                annotated("free", "2", "configmanagement.gke.io/managed: disabled"),
            ),
            ("once.yaml", annotated("once", "1", ignore)),
            ("mark.yaml", config_map("alone", "mark", "1")),
        ],
    )?;
    case.synced("alone", &second).await?;
    let free = maps.get("free").await?;
    ensure!(value(&free) == "1" && free.annotations().is_empty(), "{free:?}");
    ensure!(free.labels().is_empty(), "{free:?}");
    maps.patch("free", &PatchParams::default(), &theirs).await?;
    // Another object is corrected after that; these two are not.
    maps.patch("mark", &PatchParams::default(), &theirs).await?;
    until("the managed one is corrected", || async {
        Ok((value(&maps.get("mark").await?) == "1").then_some(()))
    })
    .await?;
    ensure!(value(&maps.get("free").await?) == "theirs");
    ensure!(value(&maps.get("once").await?) == "theirs");
    // One that is gone is made again.
    maps.delete("once", &DeleteParams::default()).await?;
    until("it is made again", || async {
        let live = maps.get_opt("once").await?;
        Ok(live.filter(|live| value(live) == "1"))
    })
    .await?;
    Ok(())
}
