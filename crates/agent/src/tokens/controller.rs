//! Watches accounts on the hub, ServiceAccounts and the CA on the managed cluster, and looks at each account when
//! something about it changed or its time has come.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        authentication::v1::SelfSubjectReview,
        core::v1::{ConfigMap, ServiceAccount},
        rbac::v1::Role,
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
use writ_api::authentication::{AGENT_ROLE, ANNOTATION_API_SERVER_CA, ANNOTATION_API_SERVER_URL};
use writ_controller::{
    Error, backoff::Backoff, clock::Clock, health::Gate, metrics::Meter, schedule::Schedule,
};

use super::{
    claims,
    plan::{self, Settings},
    reconcile::{Next, State, Watched, Worker},
    secret::Address,
};
use crate::Context;

/// Where Kubernetes publishes the CA of its API server, in every namespace.
const CA_CONFIG_MAP: &str = "kube-root-ca.crt";

enum Seen {
    Account(Event<Watched>),
    ServiceAccount(Event<ServiceAccount>),
    Ca(Event<ConfigMap>),
    /// The Role that says what the agent may do on the hub, or that it cannot be seen.
    Rights(Option<Event<Role>>),
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
        .run_until_cancelled(own_account(&ctx.spoke, &settings.namespace, options.tokens.clock))
        .await
    else {
        return Ok(());
    };
    let (owner, skew) = owner;
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
    let rights = watcher(
        Api::<Role>::namespaced(ctx.hub.clone(), &settings.cluster),
        watcher::Config::default().fields(&format!("metadata.name={AGENT_ROLE}")),
    )
    .default_backoff()
    .map(|event| Seen::Rights(event.ok()))
    .boxed();
    let events = stream::select(events, rights);
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
    worker.skew.store(Arc::new(skew));
    let controller = Controller {
        worker: Arc::new(worker),
        schedule: Schedule::default(),
        meter: ctx.health.meter("tokens"),
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

/// The ServiceAccount that the agent itself runs as, if it is one of its own namespace; and how far the clock of the
/// cluster that answers is ahead of ours: tokens that are there already are judged by it.
async fn own_account(
    spoke: &Client,
    namespace: &str,
    clock: Clock,
) -> (Option<OwnerReference>, SignedDuration) {
    let reviews: Api<SelfSubjectReview> = Api::all(spoke.clone());
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        match reviews
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
        {
            Ok(review) => {
                let answered = review.metadata.creation_timestamp.as_ref();
                let skew = answered.map(|at| plan::skew(at.0, clock.now()));
                return (owner_of(review, namespace), skew.unwrap_or_default());
            }
            // A server that does not know the question, or does not answer it.
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return (None, SignedDuration::ZERO);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot ask who the agent is, will try again");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

fn owner_of(review: SelfSubjectReview, namespace: &str) -> Option<OwnerReference> {
    let me = review.status?.user_info?;
    let subject = me.username?;
    let (_, name) = subject.rsplit_once(':')?;
    (subject == claims::subject(namespace, name)).then_some(OwnerReference {
        api_version: "v1".into(),
        kind: "ServiceAccount".into(),
        name: name.to_owned(),
        uid: me.uid?,
        ..OwnerReference::default()
    })
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
    meter: Meter,
    states: HashMap<String, State>,
    hub: Initialised,
    spoke: Initialised,
    fallback: Option<Arc<Vec<u8>>>,
    concurrency: usize,
}

/// A look at an account: its name, what is remembered of it, when to look again, and whether it had failed before.
type Look = BoxFuture<'static, (String, State, Next, bool)>;

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
                    let (worker, meter) = (self.worker.clone(), self.meter.clone());
                    looks.push(
                        async move {
                            let (began, failed) = (Instant::now(), state.fails());
                            let next = worker.look(&name, &mut state).await;
                            meter.looked_since(began, !state.fails());
                            (name, state, next, failed)
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
                Some((name, state, next, failed)) = looks.next() => {
                    self.schedule.done(&name, next.due, next.expires, clock.now());
                    if failed && !state.fails() {
                        self.wake_failing();
                    }
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
            Seen::Rights(Some(Event::Apply(role) | Event::InitApply(role))) => self.set_rights(Some(&role)),
            Seen::Rights(None | Some(Event::Delete(_))) => self.set_rights(None),
            Seen::Account(Event::Init | Event::InitApply(_))
            | Seen::ServiceAccount(Event::Init | Event::InitApply(_))
            | Seen::Ca(Event::Init | Event::InitDone)
            | Seen::Rights(Some(Event::Init | Event::InitDone)) => {}
        }
    }

    fn set_ca(&mut self, ca: Option<Arc<Vec<u8>>>) {
        let ca = ca.or_else(|| self.fallback.clone());
        if *self.worker.ca.load() != ca {
            self.worker.ca.store(ca);
            self.wake_all();
        }
    }

    /// Looks at the accounts whose Secret has become ours to write.
    fn set_rights(&mut self, role: Option<&Role>) {
        let said = |key| {
            role.and_then(|role| role.annotations().get(key))
                .filter(|said| !said.is_empty())
        };
        let ca = said(ANNOTATION_API_SERVER_CA).and_then(|ca| STANDARD.decode(ca).ok());
        let address = said(ANNOTATION_API_SERVER_URL)
            .cloned()
            .map(|url| Arc::new(Address { url, ca }));
        // A Role that cannot be seen right now takes no address away.
        if role.is_some() && *self.worker.address.load() != address {
            self.worker.address.store(address);
            self.wake_all();
        }
        let new = role.and_then(plan::writable_secrets);
        let old = self.worker.writable.load_full();
        for name in new.iter().flatten() {
            if old.as_ref().is_none_or(|old| !old.contains(name)) && self.worker.knows(name) {
                self.wake(name);
            }
        }
        self.worker.writable.store(new.map(Arc::new));
    }

    fn wake(&mut self, name: &str) {
        self.schedule.now(&name.to_owned(), self.worker.clock.now());
    }

    /// What failed for one may work for the others too: after an outage nobody waits for the end of its backoff.
    fn wake_failing(&mut self) {
        let failing = self.states.iter().filter(|(_, state)| state.fails());
        let failing: Vec<String> = failing.map(|(name, _)| name.clone()).collect();
        for name in failing {
            self.wake(&name);
        }
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
