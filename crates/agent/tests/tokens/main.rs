//! Accounts and their tokens on a real control plane, which plays the hub and the managed cluster.
#![allow(
    clippy::needless_update,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use support::{AGENTS, Agent, CLUSTER, Env, eventually, token_of};
use writ_agent::Options;
use writ_api::authentication::{LABEL_MANAGED, ManagedServiceAccount};
use writ_controller::condition;
use writ_testenv::harness;

fn main() {
    harness::run(vec![
        harness::real(
            "token_is_reported_repaired_renewed_and_dies_with_its_account",
            lifecycle,
        ),
        harness::real("foreign_objects_are_left_alone_until_adopted", adoption),
    ]);
}

async fn lifecycle() -> Result<()> {
    let env = Env::start().await?;
    let agent = env.agent();
    env.create("a", json!({})).await?;
    let first = env.token("a", &[]).await?;
    assert_eq!(
        env.accepted(&first).await?.as_deref(),
        Some("system:serviceaccount:agents:a")
    );
    let secret = env.secrets().get("a").await?;
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(secret.labels()[LABEL_MANAGED], "true");
    assert_eq!(secret.owner_references()[0].kind, "ManagedServiceAccount");
    let published: ConfigMap = Api::namespaced(env.admin.clone(), AGENTS)
        .get("kube-root-ca.crt")
        .await?;
    let ca = published.data.unwrap()["ca.crt"].clone();
    assert_eq!(secret.data.unwrap()["ca.crt"].0, ca.as_bytes());
    let account = env.accounts().get("a").await?;
    let granted = account.status.unwrap();
    assert!(
        granted
            .conditions
            .iter()
            .all(|c| c.observed_generation == Some(1))
    );

    // What others put on the Secret stays; what is ours is restored, with the same token.
    env.patch(&env.secrets(), "a", json!({
        "metadata": {"labels": {"theirs": "x", LABEL_MANAGED: null}, "annotations": {"theirs": "y"}, "ownerReferences": null},
        "data": {"ca.crt": "ZXZpbA=="},
    }))
    .await?;
    env.ask_for_repair("a", "1").await?;
    let healed = eventually(&env.secrets(), "a", |secret| {
        secret.is_some_and(|secret| {
            secret
                .data
                .as_ref()
                .is_some_and(|data| data["ca.crt"].0 == ca.as_bytes())
                && secret.labels().contains_key(LABEL_MANAGED)
                && !secret.owner_references().is_empty()
        })
    })
    .await?
    .unwrap();
    assert_eq!(
        (
            healed.labels()["theirs"].as_str(),
            healed.annotations()["theirs"].as_str()
        ),
        ("x", "y")
    );
    assert_eq!(token_of(&healed).as_deref(), Some(first.as_str()));

    // A well-formed token that the cluster does not accept is replaced, and so is a malformed one.
    let forged = format!("{}x", first.rsplit_once('.').unwrap().0.to_owned() + ".c2ln");
    env.patch(&env.secrets(), "a", json!({"stringData": {"token": forged}}))
        .await?;
    env.ask_for_repair("a", "2").await?;
    let second = env.token("a", &[&first, &forged]).await?;
    env.patch(
        &env.secrets(),
        "a",
        json!({"stringData": {"token": "in passing"}}),
    )
    .await?;
    let written = tokio::time::Instant::now();
    env.ask_for_repair("a", "3").await?;
    let third = env.token("a", &[&first, &second, &forged]).await?;
    ensure!(
        written.elapsed() > Duration::from_secs(4),
        "a malformed token waits: {:?}",
        written.elapsed()
    );

    // Another type means another Secret.
    env.secrets().delete("a", &DeleteParams::default()).await?;
    let retyped = Secret {
        metadata: ObjectMeta {
            name: Some("a".into()),
            ..ObjectMeta::default()
        },
        type_: Some("example.com/other".into()),
        data: Some(BTreeMap::from([(
            "token".to_owned(),
            ByteString(third.clone().into_bytes()),
        )])),
        ..Secret::default()
    };
    env.secrets().create(&PostParams::default(), &retyped).await?;
    env.ask_for_repair("a", "4").await?;
    let fourth = env.token("a", &[&first, &second, &third, &forged]).await?;
    assert_eq!(env.secrets().get("a").await?.type_.as_deref(), Some("Opaque"));

    // Another validity means another token.
    env.patch(
        &env.accounts(),
        "a",
        json!({"spec": {"rotation": {"validity": "1h"}}}),
    )
    .await?;
    let fifth = env.token("a", &[&first, &second, &third, &fourth]).await?;
    // The Secret is written before the status.
    let shorter = |account: Option<&ManagedServiceAccount>| {
        let ends = account
            .and_then(|a| a.status.as_ref())
            .and_then(|s| s.expiration_timestamp.as_ref());
        ends.is_some_and(|ends| {
            ends.0.duration_since(jiff::Timestamp::now()) <= jiff::SignedDuration::from_hours(1)
        })
    };
    let reported = await_condition(env.accounts(), "a", shorter);
    tokio::time::timeout(Duration::from_mins(1), reported).await??;

    // An edited ServiceAccount is restored; a deleted one is recreated, with a new token.
    env.patch(
        &env.service_accounts(),
        "a",
        json!({"metadata": {"labels": null, "annotations": null}, "automountServiceAccountToken": false}),
    )
    .await?;
    eventually(&env.service_accounts(), "a", |account| {
        account.is_some_and(|account| {
            account.labels().contains_key(LABEL_MANAGED) && account.automount_service_account_token.is_none()
        })
    })
    .await?;
    env.service_accounts()
        .delete("a", &DeleteParams::default())
        .await?;
    let sixth = env
        .token("a", &[&first, &second, &third, &fourth, &fifth])
        .await?;
    env.refused(&fifth).await?;
    assert!(env.accepted(&sixth).await?.is_some());

    // With audiences of its own the token authenticates elsewhere, not here; the account says so.
    env.patch(&env.accounts(), "a", json!({"spec": {"audiences": ["foo"]}}))
        .await?;
    let account = eventually(&env.accounts(), "a", |account| {
        account
            .and_then(|account| account.status.as_ref())
            .is_some_and(|status| {
                condition::find(&status.conditions, "AuthenticatesToAPIServer")
                    .is_some_and(|c| c.status == "False")
            })
    })
    .await?;
    assert!(condition::is_true(
        &account.unwrap().status.unwrap().conditions,
        "TokenReported"
    ));
    env.patch(&env.accounts(), "a", json!({"spec": {"audiences": null}}))
        .await?;
    let seventh = env
        .token("a", &[&first, &second, &third, &fourth, &fifth, &sixth])
        .await?;
    ensure!(
        env.accepted(&seventh).await?.is_some()
            || env.accepted(&env.token("a", &[&seventh]).await?).await?.is_some()
    );

    // The account is deleted while the agent is away: once it is back, the ServiceAccount is deleted and the token dies.
    agent.stop().await?;
    let last = env.token("a", &[]).await?;
    env.accounts().delete("a", &DeleteParams::default()).await?;
    let agent = env.agent();
    eventually(&env.service_accounts(), "a", |account| account.is_none()).await?;
    eventually(&env.secrets(), "a", |secret| secret.is_none()).await?;
    env.refused(&last).await?;
    agent.stop().await
}

async fn adoption() -> Result<()> {
    let env = Env::start().await?;
    // Bad input is refused where it is written, and the bound is named.
    for (spec, part) in [
        (json!({"rotation": {"validity": "30d"}}), "is not a duration"),
        (json!({"rotation": {"validity": "5m"}}), "at least 10m0s"),
        (
            json!({"rotation": {}, "audiences": ["a", "a"]}),
            "Duplicate value",
        ),
        (json!({"rotation": {}, "audiences": [""]}), "at least 1 chars"),
        (
            json!({"rotation": {}, "ttlSecondsAfterCreation": 0}),
            "greater than 0",
        ),
    ] {
        let refused = env
            .create("bad", json!({"spec": spec}))
            .await
            .unwrap_err()
            .to_string();
        ensure!(refused.contains(part), "{refused}");
    }
    let condition_is = |type_: &'static str, reason: &'static str| {
        move |account: Option<&ManagedServiceAccount>| {
            account
                .and_then(|account| account.status.as_ref())
                .is_some_and(|status| {
                    condition::find(&status.conditions, type_)
                        .is_some_and(|c| c.status == "False" && c.reason == reason)
                })
        }
    };
    let theirs = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("theirs".into()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    env.service_accounts()
        .create(&PostParams::default(), &theirs)
        .await?;
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("hub".into()),
            ..ObjectMeta::default()
        },
        string_data: Some(BTreeMap::from([("password".into(), "x".into())])),
        ..Secret::default()
    };
    env.secrets().create(&PostParams::default(), &secret).await?;
    let agent = env.agent();
    for name in ["theirs", "hub", "default", "fine"] {
        env.create(name, json!({})).await?;
    }
    let message = eventually(
        &env.accounts(),
        "theirs",
        condition_is("AllServiceAccountPresent", "ServiceAccountNotOurs"),
    )
    .await?;
    let text = serde_json::to_string(&message)?;
    ensure!(text.contains("authentication.writ.dev/adopt"), "{text}");
    eventually(
        &env.accounts(),
        "hub",
        condition_is("SecretCreated", "SecretNotOurs"),
    )
    .await?;
    eventually(
        &env.accounts(),
        "default",
        condition_is("AllServiceAccountPresent", "NameReserved"),
    )
    .await?;
    env.token("fine", &[]).await?;
    assert!(env.secrets().get_opt("theirs").await?.is_none());
    assert_eq!(env.secrets().get("hub").await?.data.unwrap().len(), 1);
    // The system's names are refused also with the annotation; others are taken over with it.
    let adopt = json!({"metadata": {"annotations": {"authentication.writ.dev/adopt": "true"}}});
    for name in ["theirs", "hub", "default"] {
        env.patch(&env.accounts(), name, adopt.clone()).await?;
    }
    let token = env.token("theirs", &[]).await?;
    assert_eq!(
        env.accepted(&token).await?.as_deref(),
        Some("system:serviceaccount:agents:theirs")
    );
    env.token("hub", &[]).await?;
    assert!(env.secrets().get_opt("default").await?.is_none());
    // An adopted object survives the account.
    env.accounts().delete("theirs", &DeleteParams::default()).await?;
    eventually(&env.secrets(), "theirs", |secret| secret.is_none()).await?;
    assert!(env.service_accounts().get_opt("theirs").await?.is_some());
    // An agent in another namespace: the ServiceAccount in the old one is deleted, and its tokens die.
    let old = env.token("fine", &[]).await?;
    agent.stop().await?;
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some("moved".into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::all(env.admin.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let moved = Agent::start(
        env.admin.clone(),
        env.admin.clone(),
        Options {
            cluster_name: CLUSTER.into(),
            agent_namespace: "moved".into(),
            controllers: vec!["tokens".into()],
            ..Options::default()
        },
    );
    let new = env.token("fine", &[&old]).await?;
    assert_eq!(
        env.accepted(&new).await?.as_deref(),
        Some("system:serviceaccount:moved:fine")
    );
    eventually(&env.service_accounts(), "fine", |account| account.is_none()).await?;
    moved.stop().await
}
