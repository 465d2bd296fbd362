//! Looks at accounts, one by one, on an embedded server whose clock is moved and whose answers can be made to fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod wired;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher::Event,
};
use serde_json::{Value, json};
use wired::{Env, ill};
use writ_agent::tokens::{
    reconcile::{Next, State, Watched},
    secret::Address,
};
use writ_api::authentication::ManagedServiceAccount;

#[tokio::test]
async fn a_renewal_shows_in_the_status_though_its_report_failed() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {"validity": "1h"}}))
        .await?;
    env.look("a").await?;
    let (token, before) = (env.key("a", "token").await?, env.refreshed("a").await?);
    env.pass(SignedDuration::from_mins(50));
    env.wire.fail(|what| what.ends_with("/status").then(ill));
    let next = env.look("a").await?;
    assert_ne!(env.key("a", "token").await?, token, "the Secret comes first");
    assert_eq!(env.refreshed("a").await?, before);
    env.wire.heal();
    env.pass(next.due.unwrap().duration_since(env.now()) + SignedDuration::from_secs(1));
    env.look("a").await?;
    assert_ne!(
        env.refreshed("a").await?,
        before,
        "whoever follows never hears of it"
    );
    assert_eq!(env.minted(), 2);
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_not_rotated_stays_expired() -> Result<()> {
    let mut env = Env::start().await?;
    let off = json!({"authentication.writ.dev/rotation": "disabled"});
    env.create("a", off, json!({"rotation": {"validity": "1h"}}))
        .await?;
    let next = env.look("a").await?;
    assert_eq!(next.due, next.expires, "it says so when it expires");
    env.pass(SignedDuration::from_hours(1));
    env.look("a").await?;
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenExpired");
    // Not when its review comes, and not after a restart.
    env.pass(SignedDuration::from_hours(7));
    env.look("a").await?;
    env.look_anew("a").await?;
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenExpired");
    assert_eq!(env.minted(), 1);
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_accepts_no_token_is_not_asked_in_a_loop() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.look("a").await?;
    env.wire.fail(|what| {
        let refused = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {}, "status": {"authenticated": false}});
        what.ends_with("/tokenreviews").then_some((201, refused))
    });
    // Another look at the same moment is no other token.
    for round in 0..20 {
        let repair =
            json!({"metadata": {"annotations": {"authentication.writ.dev/repair": format!("{round}")}}});
        let api: Api<ManagedServiceAccount> = Api::namespaced(env.client.clone(), "c1");
        api.patch("a", &PatchParams::default(), &Patch::Merge(&repair))
            .await?;
        env.see("a").await?;
        env.look("a").await?;
    }
    assert_eq!(env.minted(), 2);
    let end = env.now() + SignedDuration::from_hours(24);
    let mut looks = 0;
    while env.now() < end {
        let due = env.look("a").await?.due.context("never again")?;
        env.pass(due.duration_since(env.now()).max(SignedDuration::ZERO) + SignedDuration::from_secs(1));
        looks += 1;
    }
    let minted = env.minted();
    assert!((40..90).contains(&minted), "{minted} tokens in a day");
    assert!(looks < 3 * minted, "{looks} looks for {minted} tokens");
    // As soon as one is accepted, it stays.
    env.wire.heal();
    for _ in 0..3 {
        let due = env.look("a").await?.due.context("never again")?;
        env.pass(due.duration_since(env.now()).max(SignedDuration::ZERO) + SignedDuration::from_secs(1));
    }
    assert!(env.minted() <= minted + 1);
    Ok(())
}

#[tokio::test]
async fn another_ca_is_another_token_and_an_edited_one_is_not() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.look("a").await?;
    let first = env.key("a", "token").await?;
    let edit = Patch::Merge(json!({"stringData": {"ca.crt": "evil"}}));
    env.secrets().patch("a", &PatchParams::default(), &edit).await?;
    env.look_anew("a").await?;
    assert_eq!(env.key("a", "ca.crt").await?, "first CA");
    assert_eq!(env.key("a", "token").await?, first, "it was repaired");

    env.worker.ca.store(Some(Arc::new(b"second CA".to_vec())));
    env.look("a").await?;
    let second = env.key("a", "token").await?;
    assert_eq!(env.key("a", "ca.crt").await?, "second CA");
    assert_ne!(second, first);
    // The same while the agent was away.
    env.worker.ca.store(Some(Arc::new(b"third CA".to_vec())));
    env.look_anew("a").await?;
    assert_eq!(env.key("a", "ca.crt").await?, "third CA");
    assert_ne!(env.key("a", "token").await?, second);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_asked_about_is_written_once() -> Result<()> {
    let mut env = Env::start().await?;
    env.create(
        "a",
        json!({}),
        json!({"rotation": {}, "audiences": ["elsewhere"]}),
    )
    .await?;
    env.wire.fail(|what| what.ends_with("/tokenreviews").then(ill));
    for _ in 0..5 {
        let due = env.look("a").await?.due.context("never again")?;
        env.pass(due.duration_since(env.now()).max(SignedDuration::ZERO) + SignedDuration::from_secs(1));
    }
    assert_eq!(env.minted(), 1);
    env.wire.heal();
    env.look("a").await?;
    assert_eq!(
        env.reason("a", "AuthenticatesToAPIServer").await?,
        "AudienceMissing"
    );
    assert_eq!(env.minted(), 1);
    Ok(())
}

#[tokio::test]
async fn a_token_that_outlasted_nothing_is_not_written() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {"validity": "1h"}}))
        .await?;
    let no_secrets = |what: &str| (what.contains("/secrets") && !what.starts_with("GET")).then(ill);
    env.wire.fail(no_secrets);
    env.look("a").await?;
    env.look("a").await?;
    assert_eq!(env.minted(), 1, "it is kept for the next try");
    env.pass(SignedDuration::from_hours(3));
    env.wire.heal();
    let next = env.look("a").await?;
    assert!(next.expires.unwrap() > env.now(), "an expired token was written");
    assert_eq!(env.minted(), 2);
    Ok(())
}

#[tokio::test]
async fn one_bad_account_stops_nobody_and_is_told_why() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("bad", json!({}), json!({"rotation": {"validity": "5m"}}))
        .await?;
    env.create("default", json!({}), json!({"rotation": {}})).await?;
    env.create("good", json!({}), json!({"rotation": {}})).await?;
    // A refusal that cannot be told is told later.
    env.wire.fail(|what| what.ends_with("/status").then(ill));
    let next = env.look("bad").await?;
    assert!(next.due.is_some(), "nobody will ever hear of it");
    env.wire.heal();
    for name in ["bad", "default", "good"] {
        env.look(name).await?;
    }
    assert_eq!(env.reason("bad", "TokenReported").await?, "InvalidValidity");
    assert_eq!(env.reason("default", "TokenReported").await?, "NameReserved");
    assert_eq!(env.reason("good", "TokenReported").await?, "TokenReported");
    // One that cannot even be read.
    let broken = json!({"metadata": {"name": "broken", "namespace": "c1"}, "spec": {"rotation": 7}});
    let broken: Watched = serde_json::from_value(broken)?;
    assert!(broken.0.is_err());
    env.accounts.apply_watcher_event(&Event::Apply(broken));
    let mut state = State::default();
    assert_eq!(env.worker.look("broken", &mut state).await, Next::default());
    Ok(())
}

#[tokio::test]
async fn an_adopted_service_account_is_there_though_the_token_fails() -> Result<()> {
    let mut env = Env::start().await?;
    let theirs: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "a"}}))?;
    Api::<ServiceAccount>::namespaced(env.client.clone(), "agents")
        .create(&PostParams::default(), &theirs)
        .await?;
    env.create(
        "a",
        json!({"authentication.writ.dev/adopt": "true"}),
        json!({"rotation": {}}),
    )
    .await?;
    env.wire.fail(|what| what.ends_with("/token").then(ill));
    env.look("a").await?;
    assert_eq!(
        env.reason("a", "AllServiceAccountPresent").await?,
        "ServiceAccountPresent"
    );
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenReportFailed");
    Ok(())
}

#[tokio::test]
async fn optional_keys_come_with_the_address() -> Result<()> {
    let mut env = Env::start().await?;
    let keys = json!({"authentication.writ.dev/secret-keys": "kubeconfig"});
    env.create("a", keys, json!({"rotation": {}})).await?;
    env.look("a").await?;
    assert_eq!(env.reason("a", "SecretKeysWritten").await?, "AddressUnknown");
    let token = env.key("a", "token").await?;
    let reached_with = |ca: Option<&[u8]>| {
        Some(Arc::new(Address {
            url: "https://c1.example:6443".into(),
            ca: ca.map(Vec::from),
        }))
    };
    env.worker.address.store(reached_with(None));
    env.look("a").await?;
    assert!(
        env.key("a", "kubeconfig")
            .await?
            .contains("https://c1.example:6443")
    );
    assert_eq!(env.key("a", "token").await?, token, "no new token for that");
    assert_eq!(env.reason("a", "SecretKeysWritten").await?, "");
    // Another CA for that address is written too, and is no other cluster.
    env.worker.address.store(reached_with(Some(b"EXT")));
    env.look("a").await?;
    assert!(env.key("a", "kubeconfig").await?.contains("RVhU"));
    assert_eq!(env.key("a", "ca.crt").await?, "first CA");
    assert_eq!(env.key("a", "token").await?, token, "no new token for that");
    Ok(())
}

#[tokio::test]
async fn an_answer_that_never_comes_stops_nobody() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.create("b", json!({}), json!({"rotation": {}})).await?;
    env.wire.fail(|what| {
        what.ends_with("/serviceaccounts/a/token")
            .then_some((0, Value::Null))
    });
    // Enough for what is answered, on a busy machine too.
    let patience = std::mem::replace(&mut env.worker.patience, Duration::from_secs(3));
    let next = env.look("a").await?;
    env.worker.patience = patience;
    assert!(next.due.is_some(), "it is never tried again");
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenReportFailed");
    env.look("b").await?;
    env.wire.heal();
    env.look("a").await?;
    for name in ["a", "b"] {
        assert_eq!(env.reason(name, "TokenReported").await?, "TokenReported");
    }
    Ok(())
}

#[tokio::test]
async fn a_service_account_that_is_being_deleted_gives_no_token() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.look("a").await?;
    let first = env.key("a", "token").await?;
    let api: Api<ServiceAccount> = Api::namespaced(env.client.clone(), "agents");
    let hold = |finalizers: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    api.patch("a", &PatchParams::default(), &hold(&["example.com/hold"]))
        .await?;
    api.delete("a", &DeleteParams::default()).await?;
    env.see("a").await?;
    env.look("a").await?;
    for type_ in ["AllServiceAccountPresent", "TokenReported"] {
        assert_eq!(env.reason("a", type_).await?, "ServiceAccountTerminating");
    }
    assert_eq!(env.minted(), 1);
    // It goes, and there is another one with another token.
    let gone = api.get("a").await?;
    api.patch("a", &PatchParams::default(), &hold(&[])).await?;
    env.service_accounts.apply_watcher_event(&Event::Delete(gone));
    env.look("a").await?;
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenReported");
    assert_ne!(env.key("a", "token").await?, first);
    Ok(())
}

#[tokio::test]
async fn every_event_of_an_account_is_one_review() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    for _ in 0..3 {
        env.look("a").await?;
    }
    let all = env.wire.count("");
    assert_eq!(all, 4, "ServiceAccount, token, Secret and status, and no review");
    let api: Api<ManagedServiceAccount> = Api::namespaced(env.client.clone(), "c1");
    for (round, change) in [
        json!({"metadata": {"annotations": {"example.com/note": "x"}}}),
        json!({"spec": {"ttlSecondsAfterCreation": 86400}}),
        json!({"metadata": {"annotations": {"authentication.writ.dev/repair": "missing"}}}),
    ]
    .into_iter()
    .enumerate()
    {
        api.patch("a", &PatchParams::default(), &Patch::Merge(change))
            .await?;
        env.see("a").await?;
        for _ in 0..3 {
            env.look("a").await?;
        }
        assert_eq!(env.wire.count("/tokenreviews"), round + 1);
    }
    // A token that the cluster does not accept any more is replaced at such an event.
    let first = env.key("a", "token").await?;
    env.wire.fail(|what| {
        let refused = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {}, "status": {"authenticated": false}});
        what.ends_with("/tokenreviews").then_some((201, refused))
    });
    let change = json!({"metadata": {"annotations": {"example.com/note": "y"}}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(change))
        .await?;
    env.see("a").await?;
    env.look("a").await?;
    assert_ne!(env.key("a", "token").await?, first);
    Ok(())
}
