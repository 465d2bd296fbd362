//! A worker on an embedded server whose clock is moved and whose answers can be made to fail.

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
    api::PostParams,
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
    plan::Settings,
    reconcile::{Next, State, Watched, Worker},
};
use writ_api::authentication::ManagedServiceAccount;
use writ_apiserver::{Clock as Hand, Server};
use writ_controller::{clock::Clock, condition};

/// What a request gets instead of its answer: `METHOD /path` in, code and body out; with the code 0 it gets none.
type Fault = Box<dyn Fn(&str) -> Option<(u16, Value)> + Send + Sync>;

#[derive(Clone, Default)]
pub struct Wire(Arc<Mutex<(Option<Fault>, Vec<String>)>>);

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
                    Some((0, _)) => std::future::pending().await,
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

    pub fn fail(&self, fault: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static) {
        self.0.lock().unwrap().0 = Some(Box::new(fault));
    }

    pub fn heal(&self) {
        self.0.lock().unwrap().0 = None;
    }

    /// How many requests ended like that.
    pub fn count(&self, end: &str) -> usize {
        let wire = self.0.lock().unwrap();
        wire.1.iter().filter(|what| what.ends_with(end)).count()
    }
}

/// An answer of a server that is ill.
pub fn ill() -> (u16, Value) {
    (
        503,
        json!({"kind": "Status", "status": "Failure", "code": 503, "message": "ill"}),
    )
}

pub struct Env {
    pub client: Client,
    pub wire: Wire,
    pub worker: Worker,
    pub accounts: Writer<Watched>,
    pub service_accounts: Writer<ServiceAccount>,
    pub states: HashMap<String, State>,
    pub seconds: &'static AtomicI64,
    pub hand: Hand,
    _server: Server,
}

impl Env {
    pub async fn start() -> Result<Self> {
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

    pub async fn create(&mut self, name: &str, annotations: Value, spec: Value) -> Result<()> {
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
    pub async fn see(&mut self, name: &str) -> Result<()> {
        let account = self.account(name).await?;
        let seen = Event::Apply(DeserializeGuard(Ok(account)));
        self.accounts.apply_watcher_event(&seen);
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "agents");
        if let Some(account) = api.get_opt(name).await? {
            self.service_accounts.apply_watcher_event(&Event::Apply(account));
        }
        Ok(())
    }

    pub async fn look(&mut self, name: &str) -> Result<Next> {
        let state = self.states.entry(name.to_owned()).or_default();
        let next = self.worker.look(name, state).await;
        self.see(name).await?;
        Ok(next)
    }

    /// As after a restart: nothing is remembered.
    pub async fn look_anew(&mut self, name: &str) -> Result<Next> {
        self.states.clear();
        self.look(name).await
    }

    pub fn pass(&self, time: SignedDuration) {
        self.seconds.fetch_add(time.as_secs(), Ordering::Relaxed);
        self.hand.advance(time);
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds.load(Ordering::Relaxed)).unwrap()
    }

    pub async fn account(&self, name: &str) -> Result<ManagedServiceAccount> {
        let api: Api<ManagedServiceAccount> = Api::namespaced(self.client.clone(), "c1");
        Ok(api.get(name).await?)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "c1")
    }

    pub async fn key(&self, name: &str, key: &str) -> Result<String> {
        let data = self.secrets().get(name).await?.data.context("no data")?;
        Ok(String::from_utf8(
            data.get(key).context("no such key")?.0.clone(),
        )?)
    }

    pub async fn refreshed(&self, name: &str) -> Result<Timestamp> {
        let status = self.account(name).await?.status.context("no status")?;
        let reference = status.token_secret_ref.context("no token")?;
        Ok(reference.last_refresh_timestamp.0)
    }

    pub async fn reason(&self, name: &str, type_: &str) -> Result<String> {
        let status = self.account(name).await?.status.unwrap_or_default();
        let found = condition::find(&status.conditions, type_);
        Ok(found.map(|found| found.reason.clone()).unwrap_or_default())
    }

    pub fn minted(&self) -> usize {
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
