//! Looks at accounts, one by one, on an embedded server whose clock is moved and whose answers can be made to fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::{Context, Result};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Namespace, Secret, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    client::Body,
    core::DeserializeGuard,
    runtime::{
        conditions,
        reflector::{self, store::Writer},
        wait::await_condition,
        watcher::Event,
    },
};
use serde_json::{Value, json};
use writ_agent::tokens::{
    account::{Next, State, Watched, Worker},
    plan::Settings,
};
use writ_api::authentication::ManagedServiceAccount;
use writ_apiserver::{Clock as Hand, Server};
use writ_runtime::{clock::Clock, condition};

/// What a request gets instead of its answer: `METHOD /path` in, code and body out.
type Fault = Box<dyn Fn(&str) -> Option<(u16, Value)> + Send + Sync>;

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<(Option<Fault>, Vec<String>)>>);

impl Wire {
    fn client(&self, client: Client) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, wire) = (client.clone(), wire.clone());
            async move {
                let what = format!("{} {}", request.method(), request.uri().path());
                let fault = {
                    let mut wire = wire.0.lock().unwrap();
                    let fault = wire.0.as_ref().and_then(|fault| fault(&what));
                    wire.1.push(what);
                    fault
                };
                match fault {
                    Some((code, body)) => {
                        let body = Body::from(body.to_string().into_bytes());
                        Ok(Response::builder().status(code).body(body)?)
                    }
                    None => client
                        .send(request)
                        .await
                        .map_err(|error| -> Box<dyn std::error::Error + Send + Sync> { Box::new(error) }),
                }
            }
        });
        Client::new(service, "default")
    }

    fn fail(&self, fault: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static) {
        self.0.lock().unwrap().0 = Some(Box::new(fault));
    }

    fn heal(&self) {
        self.0.lock().unwrap().0 = None;
    }

    /// How many requests ended like that.
    fn count(&self, end: &str) -> usize {
        let wire = self.0.lock().unwrap();
        wire.1.iter().filter(|what| what.ends_with(end)).count()
    }
}

/// An answer of a server that is ill.
fn ill() -> (u16, Value) {
    (
        503,
        json!({"kind": "Status", "status": "Failure", "code": 503, "message": "ill"}),
    )
}

struct Env {
    client: Client,
    wire: Wire,
    worker: Worker,
    accounts: Writer<Watched>,
    service_accounts: Writer<ServiceAccount>,
    states: HashMap<String, State>,
    seconds: &'static AtomicI64,
    hand: Hand,
    _server: Server,
}

impl Env {
    async fn start() -> Result<Self> {
        let start = Timestamp::from_second(1_800_000_000)?;
        let seconds: &'static AtomicI64 = Box::leak(Box::new(AtomicI64::new(start.as_second())));
        let hand = Hand::manual(start);
        let server = Server::builder().clock(hand.clone()).start().await?;
        let client = server.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in writ_api::authentication::crds() {
            // As an older definition: objects that this one would refuse are stored already.
            let mut crd = serde_json::to_value(crd)?;
            without_rules(&mut crd);
            let crd: CustomResourceDefinition = serde_json::from_value(crd)?;
            crds.create(&PostParams::default(), &crd).await?;
            await_condition(crds.clone(), &crd.name_any(), conditions::is_crd_established()).await?;
        }
        for name in ["c1", "agents"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            Api::all(client.clone())
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        let (known, accounts) = reflector::store();
        let (known_service_accounts, service_accounts) = reflector::store();
        let settings = Settings {
            cluster: "c1".into(),
            namespace: "agents".into(),
            reserved: vec!["default".into()],
            ..Settings::default()
        };
        let wire = Wire::default();
        let wired = wire.client(client.clone());
        let ca = Some(Arc::new(b"first CA".to_vec()));
        Ok(Self {
            worker: Worker::new(
                (wired.clone(), wired),
                settings,
                Clock::Hand(seconds),
                known,
                known_service_accounts,
                ca,
            ),
            client,
            wire,
            accounts,
            service_accounts,
            states: HashMap::new(),
            seconds,
            hand,
            _server: server,
        })
    }

    async fn create(&mut self, name: &str, annotations: Value, spec: Value) -> Result<()> {
        let account = serde_json::from_value(json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        }))?;
        Api::<ManagedServiceAccount>::namespaced(self.client.clone(), "c1")
            .create(&PostParams::default(), &account)
            .await?;
        self.see(name).await
    }

    /// What the watches would show.
    async fn see(&mut self, name: &str) -> Result<()> {
        let account = self.account(name).await?;
        let seen = Event::Apply(DeserializeGuard(Ok(account)));
        self.accounts.apply_watcher_event(&seen);
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "agents");
        if let Some(account) = api.get_opt(name).await? {
            self.service_accounts.apply_watcher_event(&Event::Apply(account));
        }
        Ok(())
    }

    async fn look(&mut self, name: &str) -> Result<Next> {
        let state = self.states.entry(name.to_owned()).or_default();
        let next = self.worker.look(name, state).await;
        self.see(name).await?;
        Ok(next)
    }

    /// As after a restart: nothing is remembered.
    async fn look_anew(&mut self, name: &str) -> Result<Next> {
        self.states.clear();
        self.look(name).await
    }

    fn pass(&self, time: SignedDuration) {
        self.seconds.fetch_add(time.as_secs(), Ordering::Relaxed);
        self.hand.advance(time);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds.load(Ordering::Relaxed)).unwrap()
    }

    async fn account(&self, name: &str) -> Result<ManagedServiceAccount> {
        let api: Api<ManagedServiceAccount> = Api::namespaced(self.client.clone(), "c1");
        Ok(api.get(name).await?)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "c1")
    }

    async fn key(&self, name: &str, key: &str) -> Result<String> {
        let data = self.secrets().get(name).await?.data.context("no data")?;
        Ok(String::from_utf8(
            data.get(key).context("no such key")?.0.clone(),
        )?)
    }

    async fn refreshed(&self, name: &str) -> Result<Timestamp> {
        let status = self.account(name).await?.status.context("no status")?;
        let reference = status.token_secret_ref.context("no token")?;
        Ok(reference.last_refresh_timestamp.0)
    }

    async fn reason(&self, name: &str, type_: &str) -> Result<String> {
        let status = self.account(name).await?.status.unwrap_or_default();
        let found = condition::find(&status.conditions, type_);
        Ok(found.map(|found| found.reason.clone()).unwrap_or_default())
    }

    fn minted(&self) -> usize {
        self.wire.count("/token")
    }
}

fn without_rules(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            map.values_mut().for_each(without_rules);
        }
        Value::Array(list) => list.iter_mut().for_each(without_rules),
        _ => {}
    }
}

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
    env.worker
        .url
        .store(Some(Arc::new("https://c1.example:6443".into())));
    env.look("a").await?;
    assert!(
        env.key("a", "kubeconfig")
            .await?
            .contains("https://c1.example:6443")
    );
    assert_eq!(env.key("a", "token").await?, token, "no new token for that");
    assert_eq!(env.reason("a", "SecretKeysWritten").await?, "");
    Ok(())
}
