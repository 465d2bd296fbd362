//! Reconciles accounts, one by one, on an embedded server whose clock is moved and whose answers can be made to fail.
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
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wired::{Env, ill};
use writ_agent::tokens::{
    model::{Address, Settings},
    observe::Caches,
    reconcile::Reconciler,
    state::State,
};
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::{Next, clock::Clock};

#[tokio::test]
async fn renewal_whose_report_failed_shows_in_the_status_later() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {"validity": "1h"}}))
        .await?;
    env.reconcile("a").await?;
    let (token, before) = (env.key("a", "token").await?, env.refreshed("a").await?);
    env.pass(SignedDuration::from_mins(50));
    env.wire.fail(|what| what.ends_with("/status").then(ill));
    let next = env.reconcile("a").await?;
    assert_ne!(env.key("a", "token").await?, token, "the Secret comes first");
    assert_eq!(env.refreshed("a").await?, before);
    env.wire.heal();
    env.pass_until(next);
    env.reconcile("a").await?;
    assert_ne!(
        env.refreshed("a").await?,
        before,
        "consumers that follow the status never hear of it"
    );
    assert_eq!(env.minted(), 2);
    Ok(())
}

#[tokio::test]
async fn expired_token_without_rotation_stays_expired() -> Result<()> {
    let mut env = Env::start().await?;
    let off = json!({"authentication.writ.dev/rotation": "disabled"});
    env.create("a", off, json!({"rotation": {"validity": "1h"}}))
        .await?;
    let next = env.reconcile("a").await?;
    let expires = env.expires("a").context("no token")?;
    assert_eq!(next, Next::At(expires), "it is reported when it expires");
    env.pass(SignedDuration::from_hours(1));
    env.reconcile("a").await?;
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenExpired");
    // Not when its review comes, and not after a restart.
    env.pass(SignedDuration::from_hours(7));
    env.reconcile("a").await?;
    env.reconcile_anew("a").await?;
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenExpired");
    assert_eq!(env.minted(), 1);
    Ok(())
}

#[tokio::test]
async fn cluster_that_accepts_no_token_is_asked_with_growing_pauses() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.reconcile("a").await?;
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
        env.reconcile("a").await?;
    }
    assert_eq!(env.minted(), 2);
    let end = env.now() + SignedDuration::from_hours(24);
    let mut reconciles = 0;
    while env.now() < end {
        let next = env.reconcile("a").await?;
        env.pass_until(next);
        reconciles += 1;
    }
    let minted = env.minted();
    assert!((40..90).contains(&minted), "{minted} tokens in a day");
    assert!(
        reconciles < 3 * minted,
        "{reconciles} reconciles for {minted} tokens"
    );
    // As soon as one is accepted, it stays.
    env.wire.heal();
    for _ in 0..3 {
        let next = env.reconcile("a").await?;
        env.pass_until(next);
    }
    assert!(env.minted() <= minted + 1);
    Ok(())
}

#[tokio::test]
async fn new_ca_renews_the_token_and_an_edited_one_does_not() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.reconcile("a").await?;
    let first = env.key("a", "token").await?;
    let edit = Patch::Merge(json!({"stringData": {"ca.crt": "evil"}}));
    env.secrets().patch("a", &PatchParams::default(), &edit).await?;
    env.reconcile_anew("a").await?;
    assert_eq!(env.key("a", "ca.crt").await?, "first CA");
    assert_eq!(env.key("a", "token").await?, first, "it was repaired");

    env.set_ca("second CA", 2)?;
    env.reconcile("a").await?;
    let second = env.key("a", "token").await?;
    assert_eq!(env.key("a", "ca.crt").await?, "second CA");
    assert_ne!(second, first);
    // The same while the agent was away.
    env.set_ca("third CA", 3)?;
    env.reconcile_anew("a").await?;
    assert_eq!(env.key("a", "ca.crt").await?, "third CA");
    assert_ne!(env.key("a", "token").await?, second);
    Ok(())
}

#[tokio::test]
async fn token_that_cannot_be_reviewed_is_requested_once() -> Result<()> {
    let mut env = Env::start().await?;
    env.create(
        "a",
        json!({}),
        json!({"rotation": {}, "audiences": ["elsewhere"]}),
    )
    .await?;
    env.wire.fail(|what| what.ends_with("/tokenreviews").then(ill));
    for _ in 0..5 {
        let next = env.reconcile("a").await?;
        env.pass_until(next);
    }
    assert_eq!(env.minted(), 1);
    env.wire.heal();
    env.reconcile("a").await?;
    assert_eq!(
        env.reason("a", "AuthenticatesToAPIServer").await?,
        "AudienceMissing"
    );
    assert_eq!(env.minted(), 1);
    Ok(())
}

#[tokio::test]
async fn pending_token_that_expired_is_not_written() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {"validity": "1h"}}))
        .await?;
    let no_secrets = |what: &str| (what.contains("/secrets") && !what.starts_with("GET")).then(ill);
    env.wire.fail(no_secrets);
    env.reconcile("a").await?;
    env.reconcile("a").await?;
    assert_eq!(env.minted(), 1, "it is kept for the next try");
    env.pass(SignedDuration::from_hours(3));
    env.wire.heal();
    env.reconcile("a").await?;
    assert!(
        env.expires("a").unwrap() > env.now(),
        "an expired token was written"
    );
    assert_eq!(env.minted(), 2);
    Ok(())
}

#[tokio::test]
async fn invalid_account_is_reported_and_does_not_stop_others() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("bad", json!({}), json!({"rotation": {"validity": "5m"}}))
        .await?;
    env.create("default", json!({}), json!({"rotation": {}})).await?;
    env.create("good", json!({}), json!({"rotation": {}})).await?;
    // A refusal that cannot be reported is reported later.
    env.wire.fail(|what| what.ends_with("/status").then(ill));
    assert_eq!(env.reconcile("bad").await?, Next::Retry, "it is never reported");
    env.wire.heal();
    for name in ["bad", "default", "good"] {
        env.reconcile(name).await?;
    }
    assert_eq!(env.reason("bad", "TokenReported").await?, "InvalidValidity");
    assert_eq!(env.reason("default", "TokenReported").await?, "NameReserved");
    assert_eq!(env.reason("good", "TokenReported").await?, "TokenReported");
    Ok(())
}

#[tokio::test]
async fn account_that_does_not_parse_keeps_what_it_has() -> Result<()> {
    // A server that lists such an account and its ServiceAccount, and answers nothing else.
    let server = tower::service_fn(|request: http::Request<Body>| async move {
        let item = |spec: Value| {
            json!({"metadata": {"name": "broken", "namespace": "c1", "uid": "u", "resourceVersion": "1",
                "labels": {"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"}}, "spec": spec})
        };
        let path = request.uri().path();
        let is_list =
            path.ends_with("accounts") && !request.uri().query().unwrap_or_default().contains("watch=");
        if !is_list || request.method() != http::Method::GET {
            std::future::pending::<()>().await;
        }
        let item = if path.ends_with("/managedserviceaccounts") {
            item(json!({"rotation": 7}))
        } else {
            item(json!({}))
        };
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [item]});
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(list.to_string().into_bytes())))
    });
    let client = Client::new(server, "default");
    let settings = Settings {
        cluster: "c1".into(),
        namespace: "c1".into(),
        ..Settings::default()
    };
    let shutdown = CancellationToken::new();
    let caches = Arc::new(Caches::start(&client, &client, &settings, &shutdown));
    caches.accounts.ready().await;
    caches.service_accounts.ready().await;
    assert_eq!(caches.accounts.all().len(), 0, "it parses");
    assert_eq!(caches.service_accounts.len(), 1);
    let mut reconciler = Reconciler::new((client.clone(), client), settings, Clock::System, caches);
    reconciler.timeout = Duration::from_secs(1);
    // Any request would end in a timeout.
    let next = reconciler.reconcile("broken", &mut State::default()).await?;
    assert_eq!(next, Next::Wait);
    shutdown.cancel();
    Ok(())
}

#[tokio::test]
async fn adopted_service_account_is_reported_present_when_the_token_fails() -> Result<()> {
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
    env.reconcile("a").await?;
    assert_eq!(
        env.reason("a", "AllServiceAccountPresent").await?,
        "ServiceAccountPresent"
    );
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenReportFailed");
    Ok(())
}

#[tokio::test]
async fn optional_keys_are_written_once_the_address_is_known() -> Result<()> {
    let mut env = Env::start().await?;
    let keys = json!({"authentication.writ.dev/secret-keys": "kubeconfig"});
    env.create("a", keys, json!({"rotation": {}})).await?;
    env.reconcile("a").await?;
    assert_eq!(env.reason("a", "SecretKeysWritten").await?, "AddressUnknown");
    let token = env.key("a", "token").await?;
    let address = |ca: Option<&[u8]>| Address {
        url: "https://c1.example:6443".into(),
        ca: ca.map(Vec::from),
    };
    env.set_address(&address(None), 1)?;
    env.reconcile("a").await?;
    assert!(
        env.key("a", "kubeconfig")
            .await?
            .contains("https://c1.example:6443")
    );
    assert_eq!(env.key("a", "token").await?, token, "no new token for that");
    assert_eq!(env.reason("a", "SecretKeysWritten").await?, "");
    // Another CA for that address is written too, and is no other cluster.
    env.set_address(&address(Some(b"EXT")), 2)?;
    env.reconcile("a").await?;
    assert!(env.key("a", "kubeconfig").await?.contains("RVhU"));
    assert_eq!(env.key("a", "ca.crt").await?, "first CA");
    assert_eq!(env.key("a", "token").await?, token, "no new token for that");
    Ok(())
}

#[tokio::test]
async fn unanswered_request_does_not_stop_other_accounts() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.create("b", json!({}), json!({"rotation": {}})).await?;
    env.wire.fail(|what| {
        what.ends_with("/serviceaccounts/a/token")
            .then_some((0, Value::Null))
    });
    // Enough for what is answered, on a busy machine too.
    let timeout = std::mem::replace(&mut env.reconciler.timeout, Duration::from_secs(3));
    let next = env.reconcile("a").await?;
    env.reconciler.timeout = timeout;
    assert_eq!(next, Next::Retry, "it is never tried again");
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenReportFailed");
    env.reconcile("b").await?;
    env.wire.heal();
    env.reconcile("a").await?;
    for name in ["a", "b"] {
        assert_eq!(env.reason(name, "TokenReported").await?, "TokenReported");
    }
    Ok(())
}

#[tokio::test]
async fn terminating_service_account_gets_no_token() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    env.reconcile("a").await?;
    let first = env.key("a", "token").await?;
    let api: Api<ServiceAccount> = Api::namespaced(env.client.clone(), "agents");
    let hold = |finalizers: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    api.patch("a", &PatchParams::default(), &hold(&["example.com/hold"]))
        .await?;
    api.delete("a", &DeleteParams::default()).await?;
    env.see("a").await?;
    env.reconcile("a").await?;
    for type_ in ["AllServiceAccountPresent", "TokenReported"] {
        assert_eq!(env.reason("a", type_).await?, "ServiceAccountTerminating");
    }
    assert_eq!(env.minted(), 1);
    // Once it is gone, there is another one with another token.
    api.patch("a", &PatchParams::default(), &hold(&[])).await?;
    env.see("a").await?;
    env.reconcile("a").await?;
    assert_eq!(env.reason("a", "TokenReported").await?, "TokenReported");
    assert_ne!(env.key("a", "token").await?, first);
    Ok(())
}

#[tokio::test]
async fn each_change_of_an_account_is_one_review() -> Result<()> {
    let mut env = Env::start().await?;
    env.create("a", json!({}), json!({"rotation": {}})).await?;
    for _ in 0..3 {
        env.reconcile("a").await?;
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
            env.reconcile("a").await?;
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
    env.reconcile("a").await?;
    assert_ne!(env.key("a", "token").await?, first);
    Ok(())
}
