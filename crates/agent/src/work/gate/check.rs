//! Judges the revisions of works: asks and evaluates until a verdict rests on what holds at one moment.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::Client;
use tokio::{sync::OnceCell, time::Instant};
use tokio_util::sync::CancellationToken;
use writ_api::work::{Executor, ExecutorServiceAccount};
use writ_controller::{Error, Queue, cache::Subscription, error::status_code};
use writ_process::whoami::whoami;

use super::{
    access_review,
    answers::{GateState, OTHER_ANSWERS},
    evaluate::evaluate,
    lookup::{Comparisons, Evaluation, EvaluationInput},
    model::{AccessQuestion, AgentIdentity},
    rbac_index::RbacIndex,
    rbac_watch, reread,
};
use crate::{
    Caches, Context,
    work::{
        model::{Key, PlannedManifest, Verdict},
        options::{Authorizers, ExecutorGranularity, NilExecutor},
        plan::rbac::{bound_role, is_role, rbac_id},
    },
};

/// How long the API server's own authorizer may lag behind a change that the watches showed.
const AUTHORIZER_LAG: Duration = Duration::from_secs(5);

/// How soon a refusal is judged again while the authorizer may lag.
const RECHECK: Duration = Duration::from_millis(50);

/// How long RBAC may be unknown before works report that.
pub const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// How often an evaluation is repeated because RBAC changed meanwhile.
const MAX_ROUNDS: usize = 8;

/// Checks whether executors may do what works ask for.
pub struct Gate {
    client: Client,
    /// The agent's namespace, and the account to assume where the API server does not say who the agent is.
    configured: ExecutorServiceAccount,
    /// The agent, as the API server sees it.
    agent: OnceCell<AgentIdentity>,
    nil_executor: NilExecutor,
    granularity: ExecutorGranularity,
    authorizers: Authorizers,
    state: Arc<GateState>,
    /// The watches on RBAC; they start with the first executor.
    watches: Mutex<Option<Vec<Subscription>>>,
    caches: Arc<Caches>,
    shutdown: CancellationToken,
}

impl Gate {
    /// A gate that has asked nothing yet.
    pub fn new(context: &Context, queue: Queue<Key>) -> Self {
        let options = &context.options;
        Self {
            client: context.spoke.clone(),
            agent: OnceCell::new(),
            configured: ExecutorServiceAccount {
                namespace: options.agent_namespace.clone(),
                name: options.work.service_account.clone(),
            },
            nil_executor: options.work.nil_executor,
            granularity: options.work.executor_granularity,
            authorizers: options.work.authorizers,
            state: Arc::new(GateState::new(queue)),
            watches: Mutex::default(),
            caches: context.caches.clone(),
            shutdown: context.shutdown.clone(),
        }
    }

    /// A gate of this agent that knows RBAC without watching it.
    #[cfg(test)]
    pub(super) fn with_rbac(context: &Context, agent: AgentIdentity, rbac: RbacIndex) -> Self {
        let gate = Self::new(context, Queue::default());
        gate.state.change_rbac(|known| *known = rbac);
        Self {
            agent: OnceCell::new_with(Some(agent)),
            watches: Mutex::new(Some(Vec::new())),
            ..gate
        }
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> &GateState {
        &self.state
    }

    /// Whether these manifests, of a revision that arrived at `since`, may be written for this executor. `None` if that
    /// is not known yet; the work is queued again once it is. An error if it cannot be found out now.
    pub async fn check(
        &self,
        key: &Key,
        executor: Option<&Executor>,
        manifests: &Arc<[PlannedManifest]>,
        since: Instant,
    ) -> Result<Option<Verdict>, Error> {
        let Some(executor) = executor else {
            self.state.forget(key);
            return Ok(Some(match self.nil_executor {
                NilExecutor::Allow => Verdict::default(),
                NilExecutor::Deny => Verdict::refuse_all(
                    manifests,
                    "Failed to apply manifest work: this agent applies nothing without an executor, set spec.executor",
                ),
            }));
        };
        let account = match executor.service_account() {
            Ok(account) => account,
            Err(problem) => return Ok(Some(Verdict::refuse_all(manifests, problem))),
        };
        let targets = manifests
            .iter()
            .filter_map(|manifest| manifest.target.as_ref().ok());
        let roles = targets
            .flat_map(|target| [bound_role(target), rbac_id(target).filter(|_| is_role(target))])
            .flatten();
        self.state.remember(account, key, roles.collect());
        match self.judge(key, account, manifests, since).await {
            // The server refuses to answer: the work's status has to say so.
            Err(Error::Api { what, source }) if status_code(&source).is_some() => {
                let error = Error::Api { what, source };
                tracing::warn!(?key, %error, "an executor cannot be checked");
                let reason = format!(
                    "Failed to apply manifest work: it cannot be checked what executor {} may do: {error}",
                    account.user()
                );
                Ok(Some(Verdict::unanswered(manifests, &reason)))
            }
            other => other,
        }
    }

    /// Forgets a work that is no longer delivered.
    pub fn forget(&self, key: &Key) {
        self.state.forget(key);
    }

    /// How soon a refusal has to be judged again, if it can change without an event.
    pub fn recheck_after(&self, executor: Option<&Executor>, verdict: &Verdict) -> Option<Duration> {
        verdict.refusal.as_ref()?;
        let account = executor?.service_account().ok()?;
        if self.authorizers == Authorizers::Other {
            return Some(OTHER_ANSWERS);
        }
        let executors = self.state.executors();
        let changed = executors.get(account)?.changed?;
        (verdict.unsettled && changed.elapsed() < AUTHORIZER_LAG).then_some(RECHECK)
    }

    async fn judge(
        &self,
        key: &Key,
        account: &ExecutorServiceAccount,
        manifests: &Arc<[PlannedManifest]>,
        since: Instant,
    ) -> Result<Option<Verdict>, Error> {
        let agent = self.agent.get_or_try_init(|| self.identify_agent()).await?;
        self.watch_rbac(agent);
        // Answers to questions that were under way while RBAC changed are worthless.
        for _ in 0..MAX_ROUNDS {
            // A watch that starts over within moments refuses no work.
            if let Some(unknown) = self.state.unknown_for() {
                return Ok((unknown > LISTED_WITHIN).then(|| {
                    Verdict::unanswered(
                        manifests,
                        "Failed to apply manifest work: the RBAC objects of the cluster cannot be listed, so no \
                         executor can be checked; see the log of the agent",
                    )
                }));
            }
            let epochs = self.state.epochs(account, key);
            let (verdict, rests_on_rules) = self.decide(account, agent, manifests, since).await?;
            let is_confirmed =
                !rests_on_rules || reread::confirm(&self.client, &self.state, key, account, since).await?;
            if is_confirmed && self.state.epochs(account, key) == epochs {
                return Ok(Some(verdict));
            }
        }
        Err(Error::Busy(format!(
            "the permissions of {} keep changing while they are checked",
            account.user()
        )))
    }

    /// The verdict, and whether something is allowed because the executor holds the rules that it grants.
    async fn decide(
        &self,
        account: &ExecutorServiceAccount,
        agent: &AgentIdentity,
        manifests: &Arc<[PlannedManifest]>,
        since: Instant,
    ) -> Result<(Verdict, bool), Error> {
        let (mut answers, epoch) = self.state.answers(account, self.authorizers, since);
        let (mut comparisons, mut version) = (Comparisons::default(), None);
        loop {
            let rbac = self.state.rbac();
            if version.replace(rbac.version) != Some(rbac.version) {
                comparisons = Comparisons::default();
            }
            let evaluation;
            (evaluation, answers, comparisons) = self
                .evaluate(account, agent, manifests, rbac, answers, comparisons)
                .await?;
            match evaluation {
                Evaluation::Verdict(verdict) => return Ok((verdict, comparisons.has_allowed())),
                Evaluation::Ask(questions) => {
                    let new = access_review::ask(&self.client, account, questions).await?;
                    answers.extend(
                        new.iter()
                            .map(|(question, answer)| (question.clone(), answer.is_allowed)),
                    );
                    self.state.keep_answers(account, epoch, new);
                }
            }
        }
    }

    /// One evaluation on a thread of its own and with a copy of the RBAC objects: the author of the work decides how long it
    /// takes, and neither a task nor a change of RBAC may wait for it. Answers and comparisons are handed through.
    pub(super) async fn evaluate(
        &self,
        account: &ExecutorServiceAccount,
        agent: &AgentIdentity,
        manifests: &Arc<[PlannedManifest]>,
        rbac: Arc<RbacIndex>,
        answers: HashMap<AccessQuestion, bool>,
        mut comparisons: Comparisons,
    ) -> Result<(Evaluation, HashMap<AccessQuestion, bool>, Comparisons), Error> {
        let (executor, agent, manifests) = (account.clone(), agent.clone(), manifests.clone());
        let (authorizers, granularity) = (self.authorizers, self.granularity);
        let evaluation = tokio::task::spawn_blocking(move || {
            let input = EvaluationInput {
                executor: &executor,
                agent: &agent,
                manifests: &manifests,
                rbac: &rbac,
                answers: &answers,
                authorizers,
                granularity,
            };
            (evaluate(&input, &mut comparisons), answers, comparisons)
        });
        let stopped = |_| Error::Busy(format!("the check of {} was stopped", account.user()));
        evaluation.await.map_err(stopped)
    }

    /// The agent, as the API server sees it.
    async fn identify_agent(&self) -> Result<AgentIdentity, Error> {
        let configured = &self.configured;
        Ok(match whoami(&self.client).await? {
            Some(user) => AgentIdentity::new(
                &configured.namespace,
                user.username.as_deref().unwrap_or_default(),
                user.groups.as_deref().unwrap_or_default(),
            ),
            None => AgentIdentity::new(&configured.namespace, &configured.user(), &configured.groups()),
        })
    }

    /// Starts the watches on RBAC, with the first executor.
    fn watch_rbac(&self, agent: &AgentIdentity) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.get_or_insert_with(|| {
            let kinds = rbac_watch::watch_kinds(&self.caches, &self.state);
            let namespaces = agent.namespaces.iter();
            let namespaces = namespaces
                .map(|own| rbac_watch::watch_own_namespace(&self.client, &self.shutdown, &self.state, own));
            kinds.into_iter().chain(namespaces).collect()
        });
    }
}
