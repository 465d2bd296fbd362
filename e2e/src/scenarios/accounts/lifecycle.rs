//! One account from its first token to its end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use writ_agent::options::TokenOptions;
use writ_controller::{clock::Clock, condition};

use super::{Stage, gone};
use crate::{Fleet, at_once, fleet::AGENT_NAMESPACE, wait::until, yaml};

pub async fn a_token_works(fleet: Fleet) -> Result<()> {
    let stage = Stage::set(fleet).await?;
    let cluster = "cluster1";
    let secrets = stage.secrets(cluster);
    stage.create(cluster, "robot", json!({ "rotation": {} })).await?;
    let first = stage.token(cluster, "robot", &[]).await?;
    let user = format!("system:serviceaccount:{AGENT_NAMESPACE}:robot");
    ensure!(stage.user_of(1, &first).await?.as_deref() == Some(user.as_str()));

    // The agent may not watch Secrets: the hub sees the change and asks it.
    let edit = json!({ "data": { "ca.crt": "ZXZpbA==" }, "metadata": { "ownerReferences": null } });
    secrets
        .patch("robot", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    until("the CA and the owner to be restored", || async {
        let secret = secrets.get("robot").await?;
        let ca = secret.data.and_then(|data| Some(data.get("ca.crt")?.0.clone()));
        let owned = secret
            .metadata
            .owner_references
            .is_some_and(|owners| owners.len() == 1);
        Ok((owned && ca.is_some_and(|ca| ca.starts_with(b"-----BEGIN"))).then_some(()))
    })
    .await?;
    let label = json!({ "metadata": { "labels": {
        "authentication.open-cluster-management.io/is-managed-serviceaccount": null, "theirs": "x" } } });
    secrets
        .patch("robot", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    until("the label to be restored", || async {
        let labels = secrets.get("robot").await?.metadata.labels.unwrap_or_default();
        Ok((labels.len() == 2).then_some(()))
    })
    .await?;
    ensure!(
        stage.token(cluster, "robot", &[]).await? == first,
        "repair needs no new token"
    );
    secrets.delete("robot", &DeleteParams::default()).await?;
    let second = stage.token(cluster, "robot", &[&first]).await?;

    // A deleted ServiceAccount comes back; tokens of the old one are dead.
    let service_accounts = stage.service_accounts(1).await?;
    service_accounts.delete("robot", &DeleteParams::default()).await?;
    let third = stage.token(cluster, "robot", &[&first, &second]).await?;
    ensure!(stage.user_of(1, &third).await?.as_deref() == Some(user.as_str()));

    // An account with a time to live, long enough for a busy machine to issue its token, ends in time, and every token of it
    // dies.
    let guest = stage
        .create(
            cluster,
            "guest",
            json!({ "rotation": {}, "ttlSecondsAfterCreation": 15 }),
        )
        .await?;
    let created = guest.metadata.creation_timestamp.context("no creation time")?.0;
    let ends = created + Duration::from_secs(15);
    let guest = stage.token(cluster, "guest", &[]).await?;
    gone("the account", &stage.accounts(cluster), "guest").await?;
    let left = Clock::System.now().duration_since(ends);
    ensure!(!left.is_negative(), "it ended {left:#} too early");
    at_once("the time to live was over", left.unsigned_abs())?;
    gone("the ServiceAccount", &service_accounts, "guest").await?;
    until("the guest's token to be refused", || async {
        Ok(stage.user_of(1, &guest).await?.is_none().then_some(()))
    })
    .await?;

    // The Secret goes with its account, whether or not it still names it.
    let ownerless = json!({ "metadata": { "ownerReferences": null } });
    secrets
        .patch("robot", &PatchParams::default(), &Patch::Merge(&ownerless))
        .await?;
    stage
        .accounts(cluster)
        .delete("robot", &DeleteParams::default())
        .await?;
    gone("the ServiceAccount", &service_accounts, "robot").await?;
    gone("the Secret", &secrets, "robot").await?;
    until("the last token to be refused", || async {
        Ok(stage.user_of(1, &third).await?.is_none().then_some(()))
    })
    .await
}

/// Whoever writes accounts asks for tokens of the agent itself, of the namespace's default and of another add-on, and for
/// adoption: no token of these ever reaches the hub. An account that nobody else delivered is adopted.
pub async fn names_of_the_system(fleet: Fleet) -> Result<()> {
    let stage = Stage::set(fleet).await?;
    let work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "other-addon", "namespace": "cluster1"},
        "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "workmgr", "namespace": AGENT_NAMESPACE}}]}},
    });
    yaml::apply(&stage.admin, &work.to_string()).await?;
    let service_accounts = stage.service_accounts(1).await?;
    let plain = serde_json::from_value(json!({"metadata": {"name": "plain"}}))?;
    service_accounts.create(&PostParams::default(), &plain).await?;
    for name in ["default", "workmgr", "writ-agent"] {
        until(&format!("{name}, an account of the system"), || async {
            Ok(service_accounts.get_opt(name).await?)
        })
        .await?;
    }
    for name in [
        "default",
        "workmgr",
        "writ-agent",
        "managed-serviceaccount",
        "plain",
    ] {
        let account = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {"authentication.writ.dev/adopt": "true"}},
            "spec": {"rotation": {}},
        }))?;
        stage
            .accounts("cluster1")
            .create(&PostParams::default(), &account)
            .await?;
    }
    stage.token("cluster1", "plain", &[]).await?;
    for name in ["default", "workmgr", "writ-agent", "managed-serviceaccount"] {
        until(&format!("{name} to be refused"), || async {
            let status = stage.accounts("cluster1").get(name).await?.status;
            let said = condition::find(&status.unwrap_or_default().conditions, "TokenReported").cloned();
            Ok(said.filter(|said| said.reason == "NameReserved").map(drop))
        })
        .await?;
        ensure!(
            stage.secrets("cluster1").get_opt(name).await?.is_none(),
            "a token of {name} is on the hub"
        );
    }
    Ok(())
}

/// A Secret of somebody else is not taken over; the account has its token the moment it goes.
pub async fn a_foreign_secret(fleet: Fleet) -> Result<()> {
    let stage = Stage::set(fleet).await?;
    let secrets = stage.secrets("cluster1");
    let theirs: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "robot" }, "stringData": { "k": "v" } }))?;
    let theirs = secrets.create(&PostParams::default(), &theirs).await?;
    stage
        .create("cluster1", "robot", json!({ "rotation": {} }))
        .await?;
    until("the condition to say why", || async {
        let status = stage
            .accounts("cluster1")
            .get("robot")
            .await?
            .status
            .unwrap_or_default();
        let said = condition::find(&status.conditions, "SecretCreated").cloned();
        Ok(said
            .filter(|c| c.status == "False" && c.reason == "SecretNotOurs")
            .map(drop))
    })
    .await?;
    ensure!(secrets.get("robot").await?.data == theirs.data, "it was changed");
    secrets.delete("robot", &DeleteParams::default()).await?;
    let started = Instant::now();
    let token = stage.token("cluster1", "robot", &[]).await?;
    ensure!(stage.user_of(1, &token).await?.is_some());
    let took = started.elapsed();
    at_once("the foreign Secret was gone", took)?;
    Ok(())
}

/// The agent's clock is a month ahead of its cluster's: a token that is good by the cluster's clock is kept.
pub async fn clocks_differ(fleet: Fleet) -> Result<()> {
    let stage = Stage::without_agents(fleet).await?;
    let ahead = Clock::System
        .now()
        .saturating_add(Duration::from_hours(30 * 24))?;
    let options = writ_agent::Options {
        tokens: TokenOptions {
            clock: Clock::simulated(ahead),
            ..TokenOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let agent = stage.fleet.run_agent(1, options.clone()).await?;
    stage
        .create("cluster1", "robot", json!({ "rotation": { "validity": "1h" } }))
        .await?;
    let token = stage.token("cluster1", "robot", &[]).await?;
    ensure!(stage.user_of(1, &token).await?.is_some());
    // It looks at the Secret again: the CA is repaired, the token is not renewed.
    let secrets = stage.secrets("cluster1");
    let spoil = async || {
        let edit = Patch::Merge(json!({ "data": { "ca.crt": "ZXZpbA==" } }));
        secrets.patch("robot", &PatchParams::default(), &edit).await
    };
    let restored = async || {
        until("the CA to be restored", || async {
            let data = secrets.get("robot").await?.data.unwrap_or_default();
            let ca = data.get("ca.crt").map(|ca| ca.0.starts_with(b"-----BEGIN"));
            Ok((ca == Some(true)).then_some(()))
        })
        .await
    };
    for _ in 0..3 {
        spoil().await?;
        restored().await?;
    }
    ensure!(
        stage.token("cluster1", "robot", &[]).await? == token,
        "a good token was renewed"
    );
    // So it is by an agent that starts and finds it.
    agent.stop().await?;
    spoil().await?;
    let _agent = stage.fleet.run_agent(1, options).await?;
    restored().await?;
    ensure!(
        stage.token("cluster1", "robot", &[]).await? == token,
        "a good token was renewed by the next agent"
    );
    Ok(())
}
