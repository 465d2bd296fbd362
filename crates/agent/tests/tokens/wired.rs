//! A reconciler of accounts on an embedded server whose clock is moved and whose answers can be made to fail.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
        rbac::v1::Role,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    client::Body,
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};
use writ_agent::tokens::{
    model::{Address, Settings},
    observe::{CA_CONFIG_MAP, Caches},
    reconcile::Reconciler,
    state::State,
};
use writ_api::authentication::{
    AGENT_ROLE, ANNOTATION_API_SERVER_CA, ANNOTATION_API_SERVER_URL, ManagedServiceAccount,
};
use writ_apiserver::{Clock as Hand, Server};
use writ_controller::{Name, Next, clock::Clock, condition};

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
    pub reconciler: Reconciler,
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
        let settings = Settings {
            cluster: "c1".into(),
            namespace: "agents".into(),
            reserved: vec!["default".into()],
            ..Settings::default()
        };
        let wire = Wire::default();
        let wired = wire.client(client.clone());
        let caches = Arc::new(Caches::unwatched(&wired, &wired, &settings));
        let env = Self {
            reconciler: Reconciler::new((wired.clone(), wired), settings, Clock::Hand(seconds), caches),
            client,
            wire,
            states: HashMap::new(),
            seconds,
            hand,
            _server: server,
        };
        env.set_ca("first CA", 1)?;
        Ok(env)
    }

    /// What the cluster publishes as its CA; a higher version replaces a lower one.
    pub fn set_ca(&self, ca: &str, version: u32) -> Result<()> {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": CA_CONFIG_MAP, "namespace": "agents", "resourceVersion": version.to_string()},
            "data": {"ca.crt": ca},
        }))?;
        self.reconciler.caches.config_maps.record(map)?;
        Ok(())
    }

    /// What the hub tells as the cluster's address; a higher version replaces a lower one.
    pub fn set_address(&self, address: &Address, version: u32) -> Result<()> {
        let ca = address
            .ca
            .as_ref()
            .map(|ca| STANDARD.encode(ca))
            .unwrap_or_default();
        let role: Role = serde_json::from_value(json!({
            "metadata": {"name": AGENT_ROLE, "namespace": "c1", "resourceVersion": version.to_string(),
                "annotations": {ANNOTATION_API_SERVER_URL: address.url, ANNOTATION_API_SERVER_CA: ca}},
        }))?;
        self.reconciler.caches.roles.record(role)?;
        Ok(())
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

    /// Records what the watches would show.
    pub async fn see(&mut self, name: &str) -> Result<()> {
        let account = self.account(name).await?;
        self.reconciler.caches.accounts.record(account)?;
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "agents");
        let service_accounts = &self.reconciler.caches.service_accounts;
        match api.get_opt(name).await? {
            Some(account) => drop(service_accounts.record(account)?),
            None => service_accounts.forget(&Name::new("agents", name)),
        }
        Ok(())
    }

    /// Reconciles an account; a failure is to be retried.
    pub async fn reconcile(&mut self, name: &str) -> Result<Next> {
        let state = self.states.entry(name.to_owned()).or_default();
        let next = self.reconciler.reconcile(name, state).await;
        self.see(name).await?;
        Ok(next.unwrap_or(Next::Retry))
    }

    /// As after a restart: nothing is remembered.
    pub async fn reconcile_anew(&mut self, name: &str) -> Result<Next> {
        self.states.clear();
        self.reconcile(name).await
    }

    /// When the token that is known expires.
    pub fn expires(&self, name: &str) -> Option<Timestamp> {
        self.states.get(name).and_then(State::expires)
    }

    /// Lets the time pass until an account is to be reconciled again.
    pub fn pass_until(&self, next: Next) {
        let left = match next {
            Next::At(due) => due.duration_since(self.now()).max(SignedDuration::ZERO),
            Next::Retry => SignedDuration::from_mins(1),
            Next::Wait | Next::After(_) => panic!("it is never reconciled again: {next:?}"),
        };
        self.pass(left + SignedDuration::from_secs(1));
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
