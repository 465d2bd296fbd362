//! Watches accounts on the hub, ServiceAccounts and the CA on the managed cluster, and looks at each account when
//! something about it changed or its time has come.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::{
    api::{
        authentication::v1::SelfSubjectReview,
        core::v1::{ConfigMap, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher::{self, Event, watcher},
    },
};
use writ_runtime::{Error, backoff::Backoff, health::Gate, schedule::Schedule};

use super::{
    account::{Next, State, Watched, Worker},
    claims,
    plan::Settings,
};
use crate::Context;

/// Where Kubernetes publishes the CA of its API server, in every namespace.
const CA_CONFIG_MAP: &str = "kube-root-ca.crt";

enum Seen {
    Account(Event<Watched>),
    ServiceAccount(Event<ServiceAccount>),
    Ca(Event<ConfigMap>),
}

/// Runs until shutdown.
pub async fn run(ctx: Context) -> Result<(), Error> {
    let options = &ctx.options;
    let settings = Settings {
        cluster: options.cluster_name.clone(),
        namespace: options.agent_namespace.clone(),
        reserved: options.tokens.reserved.clone(),
        url: options.tokens.api_server_url.clone(),
        owner: None,
    };
    let hub_gate = ctx.health.gate("watch ManagedServiceAccounts");
    let spoke_gate = ctx.health.gate("watch ServiceAccounts");
    let (accounts, account_writer) = reflector::store();
    let (service_accounts, service_account_writer) = reflector::store();
    let Some(owner) = ctx
        .shutdown
        .run_until_cancelled(own_account(&ctx.spoke, &settings.namespace))
        .await
    else {
        return Ok(());
    };
    let mut settings = Settings { owner, ..settings };
    // Whatever the agent's own account is called, nobody gets a token of it.
    settings
        .reserved
        .extend(settings.owner.iter().map(|owner| owner.name.clone()));
    let events = stream::select_all([
        watcher(
            Api::<Watched>::namespaced(ctx.hub.clone(), &settings.cluster),
            watcher::Config::default(),
        )
        .default_backoff()
        .modify(|watched| watched.managed_fields_mut().clear())
        .reflect(account_writer)
        .filter_map(async |event| heard("ManagedServiceAccounts", event).map(Seen::Account))
        .boxed(),
        watcher(
            Api::<ServiceAccount>::namespaced(ctx.spoke.clone(), &settings.namespace),
            watcher::Config::default(),
        )
        .default_backoff()
        .modify(|account| account.managed_fields_mut().clear())
        .reflect(service_account_writer)
        .filter_map(async |event| heard("ServiceAccounts", event).map(Seen::ServiceAccount))
        .boxed(),
        watcher(
            Api::<ConfigMap>::namespaced(ctx.spoke.clone(), &settings.namespace),
            watcher::Config::default().fields(&format!("metadata.name={CA_CONFIG_MAP}")),
        )
        .default_backoff()
        .filter_map(async |event| heard("the cluster's CA", event).map(Seen::Ca))
        .boxed(),
    ]);
    let fallback = options
        .tokens
        .cluster_ca
        .clone()
        .map(String::into_bytes)
        .map(Arc::new);
    let worker = Worker::new(
        (ctx.hub.clone(), ctx.spoke.clone()),
        settings,
        options.tokens.clock,
        accounts,
        service_accounts,
        fallback.clone(),
    );
    let controller = Controller {
        worker: Arc::new(worker),
        schedule: Schedule::default(),
        states: HashMap::new(),
        hub: Initialised::new(hub_gate),
        spoke: Initialised::new(spoke_gate),
        fallback,
        concurrency: options.tokens.concurrency.max(1),
    };
    controller
        .run(events, ctx.shutdown.cancelled_owned().boxed())
        .await;
    Ok(())
}

/// The ServiceAccount that the agent itself runs as, if it is one of its own namespace.
async fn own_account(spoke: &Client, namespace: &str) -> Option<OwnerReference> {
    let reviews: Api<SelfSubjectReview> = Api::all(spoke.clone());
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        match reviews
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
        {
            Ok(review) => {
                let me = review.status?.user_info?;
                let subject = me.username?;
                let (_, name) = subject.rsplit_once(':')?;
                return (subject == claims::subject(namespace, name)).then_some(OwnerReference {
                    api_version: "v1".into(),
                    kind: "ServiceAccount".into(),
                    name: name.to_owned(),
                    uid: me.uid?,
                    ..OwnerReference::default()
                });
            }
            // A server that does not know the question, or does not answer it.
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => return None,
            Err(error) => {
                tracing::debug!(%error, "cannot ask who the agent is, will try again");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// A watch that fails is started again by itself; it is logged, and nothing is concluded from it.
fn heard<K>(what: &str, event: Result<Event<K>, watcher::Error>) -> Option<Event<K>> {
    event
        .inspect_err(|error| tracing::debug!(%error, "the watch of {what} failed, will start it again"))
        .ok()
}

/// Whether a watch has shown everything once.
struct Initialised {
    gate: Gate,
    done: bool,
}

impl Initialised {
    fn new(gate: Gate) -> Self {
        Self { gate, done: false }
    }

    fn set(&mut self) {
        self.done = true;
        self.gate.open();
    }
}

struct Controller {
    worker: Arc<Worker>,
    schedule: Schedule<String>,
    states: HashMap<String, State>,
    hub: Initialised,
    spoke: Initialised,
    fallback: Option<Arc<Vec<u8>>>,
    concurrency: usize,
}

type Look = BoxFuture<'static, (String, State, Next)>;

impl Controller {
    async fn run(
        mut self,
        mut events: impl futures::Stream<Item = Seen> + Unpin,
        mut shutdown: BoxFuture<'static, ()>,
    ) {
        let mut looks: FuturesUnordered<Look> = FuturesUnordered::new();
        loop {
            let clock = self.worker.clock;
            // Only when both sides are known can "there is none" be told from "not seen yet".
            if self.hub.done && self.spoke.done {
                while looks.len() < self.concurrency {
                    let Some(name) = self.schedule.take(clock.now()) else {
                        break;
                    };
                    let mut state = self.states.remove(&name).unwrap_or_default();
                    let worker = self.worker.clone();
                    looks.push(
                        async move {
                            let next = worker.look(&name, &mut state).await;
                            (name, state, next)
                        }
                        .boxed(),
                    );
                }
            }
            let full = looks.len() >= self.concurrency;
            let due = if full || !self.hub.done || !self.spoke.done {
                None
            } else {
                self.schedule.next_due()
            };
            tokio::select! {
                () = &mut shutdown => return,
                seen = events.next() => match seen {
                    Some(seen) => self.on(seen),
                    None => return,
                },
                Some((name, state, next)) = looks.next() => {
                    self.schedule.done(&name, next.due, next.expires, clock.now());
                    if self.worker.knows(&name) {
                        self.states.insert(name, state);
                    }
                }
                () = clock.sleep_until(due) => {}
            }
        }
    }

    fn on(&mut self, seen: Seen) {
        match seen {
            Seen::Account(Event::Apply(account) | Event::Delete(account)) => self.wake(&account.name_any()),
            Seen::Account(Event::InitDone) => {
                self.hub.set();
                // The hub answers: whatever failed before may work now.
                self.states.values_mut().for_each(State::hope);
                self.wake_all();
            }
            Seen::ServiceAccount(Event::Apply(account) | Event::Delete(account)) => {
                self.wake(&account.name_any());
            }
            Seen::ServiceAccount(Event::InitDone) => {
                self.spoke.set();
                self.wake_all();
            }
            Seen::Ca(Event::Apply(map) | Event::InitApply(map)) => {
                let ca = map.data.and_then(|mut data| data.remove("ca.crt"));
                self.set_ca(ca.map(String::into_bytes).map(Arc::new));
            }
            Seen::Ca(Event::Delete(_)) => self.set_ca(None),
            Seen::Account(Event::Init | Event::InitApply(_))
            | Seen::ServiceAccount(Event::Init | Event::InitApply(_))
            | Seen::Ca(Event::Init | Event::InitDone) => {}
        }
    }

    fn set_ca(&mut self, ca: Option<Arc<Vec<u8>>>) {
        let ca = ca.or_else(|| self.fallback.clone());
        if *self.worker.ca.load() != ca {
            self.worker.ca.store(ca);
            self.wake_all();
        }
    }

    fn wake(&mut self, name: &str) {
        self.schedule.now(&name.to_owned(), self.worker.clock.now());
    }

    /// Every account there is, and every ServiceAccount: it may be left from an account that is gone.
    fn wake_all(&mut self) {
        for name in names(&self.worker.accounts)
            .into_iter()
            .chain(names(&self.worker.service_accounts))
        {
            self.wake(&name);
        }
    }
}

fn names<K>(store: &Store<K>) -> Vec<String>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    store.state().iter().map(|object| object.name_any()).collect()
}
