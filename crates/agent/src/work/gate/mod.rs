//! The gate: a work with an executor is written only if the executor may hold every object through its whole life.
//!
//! * The API server decides, by SubjectAccessReview: first for all names of a kind in a namespace, for single names
//!   only where that is not granted. Equal questions are asked once, and answers are kept until RBAC changes.
//! * The RBAC objects are watched. They decide which questions can have a yes at all, so that what is not granted
//!   costs no request; a yes needs both. A change drops the answers of everybody it can touch and looks at their
//!   works again, at once.
//! * A revision is judged by answers that were asked for after it arrived, never by older ones: a permission that was
//!   gone before is not used, however late its end is seen.
//! * All or nothing: one refused manifest refuses the revision, unless the agent is told otherwise.
//! * Writing RBAC may not grant more than the executor holds, and nobody may touch what is the agent's own.

mod apart;
#[cfg(test)]
mod attacks;
mod confirm;
#[cfg(test)]
mod edits;
mod escalation;
mod follow;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod openshift;
mod plan;
mod protected;
mod question;
mod rbac;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use tokio::{sync::OnceCell, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use writ_api::work::{Executor, ExecutorServiceAccount};
use writ_controller::{
    Error,
    error::{Context as _, status_code},
    queue::Queue,
};
use writ_process::whoami::whoami;

use self::{
    escalation::Compared,
    plan::Outcome,
    question::Question,
    rbac::{Myself, Rbac, Touched},
};
pub use self::{
    escalation::{bound_role, is_role, place},
    plan::{Refused, Verdict},
    rbac::Place,
};
use super::{Key, plan::Item};
use crate::{
    Options,
    options::{Authorizers, ExecutorGranularity, NilExecutor},
};

/// How many questions are under way at once.
const CONCURRENCY: usize = 16;

/// How long answers hold where others than RBAC decide.
const OTHER_ANSWERS: Duration = Duration::from_secs(10);

/// How long the API server's own authorizer may lag behind a change that we have seen.
const LAG: Duration = Duration::from_secs(5);

/// How long a listing of RBAC may take before works say that they wait for it.
pub const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// What the API server said, and when it was asked.
#[derive(Clone, Copy)]
struct Answer {
    allowed: bool,
    asked: Instant,
}

/// What is known about one executor.
#[derive(Default)]
struct Known {
    answers: HashMap<Question, Answer>,
    /// Counts the changes of RBAC that could touch it.
    epoch: u64,
    /// When the last of them came.
    changed: Option<Instant>,
    /// Its works.
    works: HashMap<Key, Work>,
}

/// What is known about one work of an executor.
#[derive(Default)]
struct Work {
    /// The roles that its manifests write or bind: what these say decides about it, too.
    places: HashSet<Place>,
    /// Counts their changes.
    epoch: u64,
    /// When all that decides about it was last read.
    confirmed: Option<Instant>,
}

impl Known {
    fn changed(&mut self) {
        self.answers.clear();
        self.epoch += 1;
        self.changed = Some(Instant::now());
    }
}

/// Asks whether executors may do what works want.
pub struct Gate {
    client: Client,
    /// What the agent was told about itself: its namespace, and the account to assume where the API server cannot say.
    told: ExecutorServiceAccount,
    /// Who the agent is: nobody but it may touch what is its own.
    agent: OnceCell<Myself>,
    nil_executor: NilExecutor,
    granularity: ExecutorGranularity,
    authorizers: Authorizers,
    shared: Arc<Shared>,
    /// The watches on RBAC; they start with the first executor.
    watches: Mutex<Option<Vec<AbortOnDropHandle<()>>>>,
}

/// What the watches change.
struct Shared {
    /// Who looks at it for long takes a copy, so that nobody has to wait with a change.
    rbac: RwLock<Arc<Rbac>>,
    known: Mutex<HashMap<ExecutorServiceAccount, Known>>,
    queue: Queue<Key>,
    unlisted: Mutex<Unlisted>,
}

/// How many listings are still to come before all is known: the first of each watch, and one after each error.
struct Unlisted {
    count: usize,
    since: Instant,
}

impl Shared {
    /// The RBAC objects as they are now.
    fn rbac(&self) -> Arc<Rbac> {
        self.rbac.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the RBAC objects. Whoever looks at them meanwhile keeps what there was.
    fn change<T>(&self, change: impl FnOnce(&mut Rbac) -> T) -> T {
        let mut rbac = self.rbac.write().unwrap_or_else(PoisonError::into_inner);
        let rbac = Arc::make_mut(&mut rbac);
        rbac.version += 1;
        change(rbac)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ExecutorServiceAccount, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the answers of everybody that a change can touch, and looks at their works again; and at those that rest
    /// on the very role that changed.
    fn touched(&self, touched: &Touched, place: Option<&Place>) {
        for (account, known) in self.known().iter_mut() {
            let all = touched.includes(account);
            if all {
                known.changed();
            }
            for (key, work) in &mut known.works {
                let rests = place.is_some_and(|place| work.places.contains(place));
                if rests {
                    work.epoch += 1;
                }
                if all || rests {
                    self.queue.add(key.clone());
                }
            }
        }
    }

    fn unlisted(&self) -> MutexGuard<'_, Unlisted> {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many listings are to come: what was shown before, if anything, may not be true any more.
    fn unknown(&self, count: usize) {
        let mut unlisted = self.unlisted();
        if unlisted.count == 0 {
            unlisted.since = Instant::now();
        }
        unlisted.count += count;
    }

    /// One more listing is done; with the last one the works that wait for it are looked at.
    fn listed(&self) {
        let mut unlisted = self.unlisted();
        unlisted.count = unlisted.count.saturating_sub(1);
        if unlisted.count == 0 {
            drop(unlisted);
            self.look_again();
        }
    }

    /// For how long it is not known what RBAC says; `None` if it is.
    fn unknown_for(&self) -> Option<Duration> {
        let unlisted = self.unlisted();
        (unlisted.count > 0).then(|| unlisted.since.elapsed())
    }

    /// Looks at every work again: what is protected changed, or all is known now.
    fn look_again(&self) {
        for known in self.known().values_mut() {
            known.epoch += 1;
            for key in known.works.keys() {
                self.queue.add(key.clone());
            }
        }
    }

    /// Drops every answer.
    fn doubt(&self) {
        for known in self.known().values_mut() {
            known.answers.clear();
            known.epoch += 1;
        }
    }
}

impl Gate {
    /// A gate that has asked nothing yet.
    pub fn new(client: Client, options: &Options, queue: Queue<Key>) -> Self {
        Self {
            client,
            agent: OnceCell::new(),
            told: ExecutorServiceAccount {
                namespace: options.agent_namespace.clone(),
                name: options.work.service_account.clone(),
            },
            nil_executor: options.work.nil_executor,
            granularity: options.work.executor_granularity,
            authorizers: options.work.authorizers,
            shared: Arc::new(Shared {
                rbac: RwLock::default(),
                known: Mutex::default(),
                queue,
                unlisted: Mutex::new(Unlisted {
                    count: 0,
                    since: Instant::now(),
                }),
            }),
            watches: Mutex::default(),
        }
    }

    /// Whether these manifests, of a revision that arrived at `since`, may be written for this executor. `None` means
    /// that it cannot be told yet, and that the work is looked at again once it can. An error means: not now.
    pub async fn check(
        &self,
        key: &Key,
        executor: Option<&Executor>,
        items: &Arc<[Item]>,
        since: Instant,
    ) -> Result<Option<Verdict>, Error> {
        let Some(executor) = executor else {
            self.forget(key);
            return Ok(Some(match self.nil_executor {
                NilExecutor::Allow => Verdict::default(),
                NilExecutor::Deny => Verdict::refuse_all(
                    items,
                    "Failed to apply manifest work: this agent applies nothing without an executor, set spec.executor",
                ),
            }));
        };
        let account = match executor.service_account() {
            Ok(account) => account,
            Err(problem) => return Ok(Some(Verdict::refuse_all(items, problem))),
        };
        self.remember(account, key, items);
        match self.judge(key, account, items, since).await {
            // The server will not tell: whoever reads the work has to know.
            Err(Error::Api { what, source }) if status_code(&source).is_some() => {
                let error = Error::Api { what, source };
                tracing::warn!(?key, %error, "an executor cannot be checked");
                let reason = format!(
                    "Failed to apply manifest work: it cannot be checked what executor {} may do: {error}",
                    account.user()
                );
                Ok(Some(Verdict::unanswered(items, &reason)))
            }
            other => other,
        }
    }

    async fn judge(
        &self,
        key: &Key,
        account: &ExecutorServiceAccount,
        items: &Arc<[Item]>,
        since: Instant,
    ) -> Result<Option<Verdict>, Error> {
        let agent = self.agent.get_or_try_init(|| self.myself()).await?;
        self.follow_rbac(agent);
        // A change that comes while questions are under way makes their answers worthless.
        for _ in 0..8 {
            // A watch that is started anew within moments refuses nobody.
            if let Some(unknown) = self.shared.unknown_for() {
                return Ok((unknown > LISTED_WITHIN).then(|| {
                    Verdict::unanswered(
                        items,
                        "Failed to apply manifest work: the RBAC objects of the cluster cannot be listed, so no \
                         executor can be checked; see the log of the agent",
                    )
                }));
            }
            let epochs = self.epochs(account, key);
            let (verdict, compared) = self.decide(account, agent, items, since).await?;
            let shown = !compared || self.confirm(key, account, since).await?;
            if shown && self.epochs(account, key) == epochs {
                return Ok(Some(verdict));
            }
        }
        Err(Error::Invalid(format!(
            "the permissions of {} keep changing while they are looked at",
            account.user()
        )))
    }

    /// How soon to look again at a refusal, if something can change it that no event tells.
    pub fn recheck(&self, executor: Option<&Executor>, verdict: &Verdict) -> Option<Duration> {
        verdict.refusal.as_ref()?;
        let account = executor?.service_account().ok()?;
        if self.authorizers == Authorizers::Other {
            return Some(OTHER_ANSWERS);
        }
        let known = self.shared.known();
        let changed = known.get(account)?.changed?;
        (verdict.unsettled && changed.elapsed() < LAG).then_some(Duration::from_millis(50))
    }

    fn remember(&self, account: &ExecutorServiceAccount, key: &Key, items: &[Item]) {
        let targets = items.iter().filter_map(|item| item.target.as_ref().ok());
        let places = targets
            .flat_map(|target| [bound_role(target), place(target).filter(|_| is_role(target))])
            .flatten()
            .collect();
        let mut known = self.shared.known();
        for (other, entry) in known.iter_mut() {
            if other != account {
                entry.works.remove(key);
            }
        }
        known.retain(|other, entry| other == account || !entry.works.is_empty());
        let works = &mut known.entry(account.clone()).or_default().works;
        works.entry(key.clone()).or_default().places = places;
    }

    /// Forgets a work, and what was known about executors that have none left.
    pub fn forget(&self, key: &Key) {
        self.shared.known().retain(|_, entry| {
            entry.works.remove(key);
            !entry.works.is_empty()
        });
    }

    /// They change with everything that can change the verdict about a work.
    fn epochs(&self, account: &ExecutorServiceAccount, key: &Key) -> (u64, u64) {
        self.shared.known().get(account).map_or((0, 0), |known| {
            (known.epoch, known.works.get(key).map_or(0, |work| work.epoch))
        })
    }

    /// The verdict, and whether something is allowed because the executor holds it, as far as the watches showed.
    async fn decide(
        &self,
        account: &ExecutorServiceAccount,
        agent: &Myself,
        items: &Arc<[Item]>,
        since: Instant,
    ) -> Result<(Verdict, bool), Error> {
        let (mut answers, epoch) = self.answers(account, since);
        let (mut compared, mut version) = (Compared::default(), None);
        loop {
            let rbac = self.shared.rbac();
            if version.replace(rbac.version) != Some(rbac.version) {
                compared = Compared::default();
            }
            let outcome;
            (outcome, answers, compared) = self
                .evaluate(account, agent, items, rbac, answers, compared)
                .await?;
            match outcome {
                Outcome::Verdict(verdict) => return Ok((verdict, compared.allows())),
                Outcome::Ask(questions) => {
                    let asked = self.ask(account, questions).await?;
                    answers.extend(
                        asked
                            .iter()
                            .map(|(question, answer)| (question.clone(), answer.allowed)),
                    );
                    self.keep(account, epoch, asked);
                }
            }
        }
    }

    /// The answers that hold for a revision that arrived then.
    fn answers(&self, account: &ExecutorServiceAccount, since: Instant) -> (HashMap<Question, bool>, u64) {
        let mut known = self.shared.known();
        let entry = known.entry(account.clone()).or_default();
        match self.authorizers {
            Authorizers::Other => entry
                .answers
                .retain(|_, answer| answer.asked.elapsed() <= OTHER_ANSWERS),
            // Only what RBAC grants is asked, so a no means that the API server lags behind: it is asked again.
            Authorizers::Rbac => entry.answers.retain(|_, answer| answer.allowed),
        }
        let answers = entry
            .answers
            .iter()
            .filter(|(_, answer)| answer.asked >= since)
            .map(|(question, answer)| (question.clone(), answer.allowed))
            .collect();
        (answers, entry.epoch)
    }

    fn keep(&self, account: &ExecutorServiceAccount, epoch: u64, asked: Vec<(Question, Answer)>) {
        let mut known = self.shared.known();
        let entry = known.entry(account.clone()).or_default();
        if entry.epoch == epoch {
            entry.answers.extend(asked);
        }
    }

    async fn ask(
        &self,
        account: &ExecutorServiceAccount,
        questions: BTreeSet<Question>,
    ) -> Result<Vec<(Question, Answer)>, Error> {
        let (user, groups) = (account.user(), account.groups());
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let asked: Vec<_> = questions
            .into_iter()
            .map(|question| {
                let (api, review) = (api.clone(), question.review(&user, &groups));
                async move {
                    let asked = Instant::now();
                    let answer = api
                        .create(&PostParams::default(), &review)
                        .await
                        .context(|| "ask by SubjectAccessReview".into())?;
                    let allowed = answer
                        .status
                        .is_some_and(|status| status.allowed && status.denied != Some(true));
                    Ok::<_, Error>((question, Answer { allowed, asked }))
                }
            })
            .collect();
        stream::iter(asked)
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await
    }

    /// Who the agent is, as the API server sees it.
    async fn myself(&self) -> Result<Myself, Error> {
        let told = &self.told;
        Ok(match whoami(&self.client).await? {
            Some(me) => Myself::new(
                &told.namespace,
                me.username.as_deref().unwrap_or_default(),
                me.groups.as_deref().unwrap_or_default(),
            ),
            None => Myself::new(&told.namespace, &told.user(), &told.groups()),
        })
    }

    /// Starts the watches on RBAC with the first executor.
    fn follow_rbac(&self, agent: &Myself) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.get_or_insert_with(|| follow::start(&self.client, &self.shared, &agent.namespaces));
    }

    /// Runs until shutdown; the watches end with it.
    pub async fn run(&self, shutdown: &CancellationToken) {
        shutdown.cancelled().await;
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
