//! A month in the life of many accounts, on embedded clusters and a clock that is moved: what the agents of all clusters
//! do when each account's time comes, and whether any account is ever without a valid token.
//!
//! Nothing is watched here: the watches of a thousand agents would have to be renewed every few minutes of a month. How an
//! agent reconciles an account, and in which order, is the agent's own code.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec},
        core::v1::{Namespace, Secret, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams, client::Body};
use serde_json::json;
use writ_agent::tokens::{model::Settings, observe::Caches, reconcile::Reconciler, state::State};
use writ_api::authentication::ManagedServiceAccount;
use writ_apiserver::{Clock as Hand, Server};
use writ_controller::{Next, Queue, clock::Clock};

/// The namespace of every agent.
const AGENTS: &str = "open-cluster-management-agent";
/// How long a token shall live.
const VALIDITY: SignedDuration = SignedDuration::from_hours(168);
/// How long it goes on.
const MONTH: SignedDuration = SignedDuration::from_hours(30 * 24);
/// When the hub goes away, and for how long.
const OUTAGE: (SignedDuration, SignedDuration) =
    (SignedDuration::from_hours(9 * 24), SignedDuration::from_hours(24));

/// What happened.
#[derive(Debug, Default)]
pub struct Month {
    /// How many accounts there were.
    pub accounts: usize,
    /// How many tokens were renewed.
    pub renewals: usize,
    /// How many reconciles that took.
    pub reconciles: usize,
    /// Reconciles that failed because the hub was away.
    pub failures: usize,
    /// The earliest and latest part of its life at which a token was renewed, outside of the outage.
    pub parts: (f64, f64),
    /// The most renewals within one minute of the first round, when all tokens have the same age.
    pub most_per_minute: usize,
    /// How many minutes the first round took.
    pub minutes: i64,
    /// The least time that any token had left when it was renewed.
    pub least_left: SignedDuration,
    /// Tokens that the clusters were asked about, and accepted.
    pub reviewed: usize,
    /// Whether after the outage every cluster renewed the token first that would have expired first.
    pub oldest_first: bool,
}

struct Agent {
    cluster: String,
    reconciler: Reconciler,
    spoke: Client,
    queue: Queue<String>,
    states: HashMap<String, State>,
    expires: BTreeMap<String, Timestamp>,
    _server: Server,
}

struct World {
    clock: Clock,
    seconds: &'static AtomicI64,
    hand: Hand,
    hub: Client,
    agents: Vec<Agent>,
    month: Month,
    /// When each token was renewed first, in minutes.
    first_round: BTreeMap<i64, usize>,
    away: Arc<AtomicBool>,
    outage: (Timestamp, Timestamp),
}

/// Lets a month pass.
pub async fn simulate(clusters: usize, accounts: usize) -> Result<Month> {
    let start = Timestamp::from_second(1_800_000_000)?;
    // One small number for the rest of the process, so that the clock can be copied into every agent.
    let seconds: &'static AtomicI64 = Box::leak(Box::new(AtomicI64::new(start.as_second())));
    let hand = Hand::manual(start);
    let server = Server::builder().clock(hand.clone()).start().await?;
    let hub = server.client();
    install(&hub).await?;
    let away = Arc::new(AtomicBool::new(false));
    let mut world = World {
        clock: Clock::Hand(seconds),
        seconds,
        hand,
        hub: hub.clone(),
        agents: Vec::new(),
        month: Month {
            accounts: clusters * accounts,
            parts: (f64::MAX, 0.0),
            least_left: SignedDuration::MAX,
            oldest_first: true,
            ..Month::default()
        },
        first_round: BTreeMap::new(),
        outage: (start + OUTAGE.0, start + OUTAGE.0 + OUTAGE.1),
        away: away.clone(),
    };
    for number in 0..clusters {
        let agent = world
            .join(number, accounts, flaky(hub.clone(), away.clone()))
            .await?;
        world.agents.push(agent);
    }
    world.run(start + MONTH).await?;
    let month = &mut world.month;
    month.most_per_minute = world.first_round.values().copied().max().unwrap_or(0);
    let ends = world.first_round.keys().min().zip(world.first_round.keys().max());
    month.minutes = ends.map_or(0, |(first, last)| last - first + 1);
    Ok(world.month)
}

/// A client that fails while the hub is away.
fn flaky(hub: Client, away: Arc<AtomicBool>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (hub, away) = (hub.clone(), away.load(Ordering::Relaxed));
        async move {
            if away {
                return Err("the hub is away".into());
            }
            hub.send(request)
                .await
                .map_err(|error| -> Box<dyn std::error::Error + Send + Sync> { Box::new(error) })
        }
    });
    Client::new(service, "default")
}

async fn install(hub: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(hub.clone());
    for definition in writ_api::authentication::crds() {
        api.create(&PostParams::default(), &definition).await?;
        let name = definition.name_any();
        loop {
            let status = api.get(&name).await?.status.unwrap_or_default();
            let established = status.conditions.unwrap_or_default().into_iter();
            if established
                .filter(|c| c.type_ == "Established")
                .any(|c| c.status == "True")
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

async fn namespace(client: &Client, name: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

impl World {
    async fn join(&self, number: usize, accounts: usize, flaky: Client) -> Result<Agent> {
        let cluster = format!("cluster{number}");
        let server = Server::builder().clock(self.hand.clone()).start().await?;
        let spoke = server.client();
        namespace(&self.hub, &cluster).await?;
        namespace(&spoke, AGENTS).await?;
        let settings = Settings {
            cluster: cluster.clone(),
            namespace: AGENTS.into(),
            ca: Some(server.ca().to_owned()),
            ..Settings::default()
        };
        let caches = Arc::new(Caches::unwatched(&flaky, &spoke, &settings));
        let agent = Agent {
            reconciler: Reconciler::new((flaky, spoke.clone()), settings, self.clock, caches),
            cluster,
            spoke,
            queue: Queue::with_clock(self.clock),
            states: HashMap::new(),
            expires: BTreeMap::new(),
            _server: server,
        };
        let api: Api<ManagedServiceAccount> = Api::namespaced(self.hub.clone(), &agent.cluster);
        for n in 0..accounts {
            let account = serde_json::from_value(json!({
                "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
                "metadata": { "name": format!("robot{n}") }, "spec": { "rotation": { "validity": "168h" } },
            }))?;
            let account = api.create(&PostParams::default(), &account).await?;
            agent.queue.add(account.name_any());
            agent.reconciler.caches.accounts.record(account)?;
        }
        Ok(agent)
    }

    async fn run(&mut self, end: Timestamp) -> Result<()> {
        let mut due: BTreeSet<(Timestamp, usize)> = BTreeSet::new();
        for index in 0..self.agents.len() {
            self.serve(index, &mut due).await?;
        }
        let mut next_review = self.clock.now();
        while let Some((at, index)) = due.pop_first() {
            if at > end {
                break;
            }
            self.advance(at);
            if self.away.load(Ordering::Relaxed) != self.is_away() {
                self.away.store(self.is_away(), Ordering::Relaxed);
                if !self.is_away() {
                    // The watches answer again, and every agent looks at everything it has.
                    due.clear();
                    for index in 0..self.agents.len() {
                        self.back(index, &mut due).await?;
                    }
                    continue;
                }
            }
            self.serve(index, &mut due).await?;
            let now = self.clock.now();
            if !self.is_away() && now >= next_review {
                next_review = now + SignedDuration::from_hours(12);
                self.review().await?;
            }
        }
        self.review().await
    }

    fn is_away(&self) -> bool {
        let now = self.clock.now();
        self.outage.0 <= now && now < self.outage.1
    }

    fn advance(&mut self, to: Timestamp) {
        // Never past the end of the outage: the watches see it at once.
        let to = if self.is_away() { to.min(self.outage.1) } else { to };
        // The clock shows whole seconds; what is due is due when the second is full.
        let second = to.as_second() + i64::from(to.subsec_nanosecond() > 0);
        self.seconds.fetch_max(second, Ordering::Relaxed);
        let passed = self.clock.now().duration_since(self.hand.now());
        self.hand.advance(passed);
    }

    /// After the outage: what failed may work now, and the most urgent goes first.
    async fn back(&mut self, index: usize, due: &mut BTreeSet<(Timestamp, usize)>) -> Result<()> {
        let agent = self.agents.get_mut(index).context("no such agent")?;
        let mut waiting: Vec<(Timestamp, String)> = Vec::new();
        for (name, expires) in &agent.expires {
            agent.queue.add(name.clone());
            waiting.push((*expires, name.clone()));
        }
        waiting.sort();
        let before = agent.expires.clone();
        let order = self.serve(index, due).await?;
        let agent = self.agents.get(index).context("no such agent")?;
        let renewed = |name: &String| agent.expires.get(name) != before.get(name);
        let wanted: Vec<&String> = waiting
            .iter()
            .map(|(_, name)| name)
            .filter(|n| renewed(n))
            .collect();
        let was: Vec<&String> = order.iter().filter(|n| renewed(n)).collect();
        self.month.oldest_first &= wanted == was;
        Ok(())
    }

    /// Reconciles every account of one cluster whose time has come; returns them in that order.
    async fn serve(&mut self, index: usize, due: &mut BTreeSet<(Timestamp, usize)>) -> Result<Vec<String>> {
        let mut order = Vec::new();
        let agent = self.agents.get_mut(index).context("no such agent")?;
        while let Some(name) = agent.queue.take() {
            let mut state = agent.states.remove(&name).unwrap_or_default();
            let next = agent.reconciler.reconcile(&name, &mut state).await;
            let now = self.clock.now();
            self.month.reconciles += 1;
            let before = agent.expires.get(&name).copied();
            if let Some(expires) = state.expires().filter(|expires| Some(*expires) != before) {
                renewed(
                    &mut self.month,
                    &mut self.first_round,
                    before,
                    expires,
                    now,
                    self.outage,
                )?;
                agent.expires.insert(name.clone(), expires);
            }
            if self.away.load(Ordering::Relaxed) {
                self.month.failures += 1;
            } else {
                // What the watches would show.
                agent.refresh(&self.hub, &name).await?;
            }
            let expires = agent.expires.get(&name).context("no token after a reconcile")?;
            ensure!(
                *expires > now,
                "{}/{name} has no valid token at {now}",
                agent.cluster
            );
            agent.queue.set_urgency(&name, state.expires());
            agent.queue.finish(name.clone(), next.unwrap_or(Next::Retry));
            agent.states.insert(name.clone(), state);
            order.push(name);
        }
        due.extend(agent.queue.next_appointment().map(|at| (at, index)));
        Ok(order)
    }

    /// Asks every cluster about one token on the hub.
    async fn review(&mut self) -> Result<()> {
        for agent in &self.agents {
            for name in agent.expires.keys() {
                let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), &agent.cluster);
                let data = secrets.get(name).await?.data.unwrap_or_default();
                let token = data.get("token").context("no token")?;
                let review = TokenReview {
                    spec: TokenReviewSpec {
                        token: String::from_utf8(token.0.clone())?,
                        audiences: None,
                    },
                    ..TokenReview::default()
                };
                let answer = Api::all(agent.spoke.clone())
                    .create(&PostParams::default(), &review)
                    .await?;
                let accepted = answer.status.is_some_and(|s| s.authenticated == Some(true));
                ensure!(accepted, "{}/{name} is refused", agent.cluster);
                self.month.reviewed += 1;
            }
        }
        Ok(())
    }
}

impl Agent {
    async fn refresh(&mut self, hub: &Client, name: &str) -> Result<()> {
        let accounts: Api<ManagedServiceAccount> = Api::namespaced(hub.clone(), &self.cluster);
        let account = accounts.get(name).await?;
        self.reconciler.caches.accounts.record(account)?;
        let service_accounts: Api<ServiceAccount> = Api::namespaced(self.spoke.clone(), AGENTS);
        let account = service_accounts.get(name).await?;
        self.reconciler.caches.service_accounts.record(account)?;
        Ok(())
    }
}

/// Counts a renewal.
fn renewed(
    month: &mut Month,
    first_round: &mut BTreeMap<i64, usize>,
    before: Option<Timestamp>,
    expires: Timestamp,
    now: Timestamp,
    outage: (Timestamp, Timestamp),
) -> Result<()> {
    // A token that was asked for while the hub was away is kept until the hub is back, and is older then.
    let kept = match outage {
        (began, ended) if now >= ended && expires.duration_since(ended) < VALIDITY => {
            ended.duration_since(began)
        }
        _ => SignedDuration::ZERO,
    };
    ensure!(
        expires.duration_since(now) >= VALIDITY - kept - SignedDuration::from_secs(5),
        "a new token lives until {expires}, asked for at {now}; the last one lived until {before:?}"
    );
    let Some(before) = before else { return Ok(()) };
    month.renewals += 1;
    let left = before.duration_since(now);
    month.least_left = month.least_left.min(left);
    let part = 1.0 - left.as_secs_f64() / VALIDITY.as_secs_f64();
    // A token whose time came during the outage is renewed after it.
    if now < outage.0 || now > outage.1 {
        month.parts = (month.parts.0.min(part), month.parts.1.max(part));
    }
    let issued = before - VALIDITY;
    if issued <= outage.0 - OUTAGE.0 + SignedDuration::from_secs(5) {
        *first_round.entry(now.as_second() / 60).or_default() += 1;
    }
    Ok(())
}
