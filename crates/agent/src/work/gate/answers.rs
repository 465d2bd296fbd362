//! What the gate remembers of each executor: the answers of the API server, and whether they still hold.
//!
//! An answer holds until RBAC changes in a way that can affect the executor. Epochs count these changes, so that an
//! evaluation that was under way meanwhile is repeated. See `docs/design/executor-answers.md`.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use tokio::time::Instant;
use writ_api::work::ExecutorServiceAccount;
use writ_controller::queue::Queue;

use super::{
    access_review::AccessAnswer,
    model::AccessQuestion,
    rbac_index::{AffectedSubjects, RbacIndex},
};
use crate::work::{
    model::{Key, RbacId},
    options::Authorizers,
};

/// How long answers hold where others than RBAC decide.
pub const OTHER_ANSWERS: Duration = Duration::from_secs(10);

/// What is remembered of one executor.
#[derive(Debug, Default)]
pub struct ExecutorState {
    answers: HashMap<AccessQuestion, AccessAnswer>,
    /// Counts the changes of RBAC that could affect it.
    epoch: u64,
    /// When the last of them came.
    pub changed: Option<Instant>,
    /// Its works.
    pub works: HashMap<Key, ExecutorWork>,
}

/// What is remembered of one work of an executor.
#[derive(Debug, Default)]
pub struct ExecutorWork {
    /// The roles that its manifests write or bind: their rules decide about it too.
    pub roles: HashSet<RbacId>,
    /// Counts their changes.
    epoch: u64,
    /// When everything that decides about it was last read from the API server.
    pub confirmed: Option<Instant>,
}

/// What the gate remembers, and what its watches change.
pub struct GateState {
    /// Evaluations take a copy, so that no change has to wait for them.
    rbac: RwLock<Arc<RbacIndex>>,
    executors: Mutex<HashMap<ExecutorServiceAccount, ExecutorState>>,
    queue: Queue<Key>,
    pending_lists: Mutex<PendingLists>,
}

/// How many lists have to complete before RBAC is known: the first of each watch, and one after each error.
struct PendingLists {
    count: usize,
    since: Instant,
}

impl GateState {
    /// Nothing is known yet. Works are queued here when they have to be judged again.
    pub fn new(queue: Queue<Key>) -> Self {
        Self {
            rbac: RwLock::default(),
            executors: Mutex::default(),
            queue,
            pending_lists: Mutex::new(PendingLists {
                count: 0,
                since: Instant::now(),
            }),
        }
    }

    /// The RBAC objects as they are now.
    pub fn rbac(&self) -> Arc<RbacIndex> {
        self.rbac.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the RBAC objects. Evaluations under way keep their copy.
    pub fn change_rbac<T>(&self, change: impl FnOnce(&mut RbacIndex) -> T) -> T {
        let mut rbac = self.rbac.write().unwrap_or_else(PoisonError::into_inner);
        let rbac = Arc::make_mut(&mut rbac);
        rbac.version += 1;
        change(rbac)
    }

    /// What is remembered of the executors.
    pub fn executors(&self) -> MutexGuard<'_, HashMap<ExecutorServiceAccount, ExecutorState>> {
        self.executors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers which roles a work rests on. It is judged again when they, or the rights of its executor, change.
    pub fn remember(&self, account: &ExecutorServiceAccount, key: &Key, roles: HashSet<RbacId>) {
        let mut executors = self.executors();
        for (other, executor) in executors.iter_mut() {
            if other != account {
                executor.works.remove(key);
            }
        }
        executors.retain(|other, executor| other == account || !executor.works.is_empty());
        let works = &mut executors.entry(account.clone()).or_default().works;
        works.entry(key.clone()).or_default().roles = roles;
    }

    /// Forgets a work, and the executors that have no other work.
    pub fn forget(&self, key: &Key) {
        self.executors().retain(|_, executor| {
            executor.works.remove(key);
            !executor.works.is_empty()
        });
    }

    /// The epochs of an executor and of its work: they change with everything that can change the verdict.
    pub fn epochs(&self, account: &ExecutorServiceAccount, key: &Key) -> (u64, u64) {
        self.executors().get(account).map_or((0, 0), |executor| {
            let of_work = executor.works.get(key).map_or(0, |work| work.epoch);
            (executor.epoch, of_work)
        })
    }

    /// The answers that hold for a revision that arrived then, and the epoch that they belong to.
    pub fn answers(
        &self,
        account: &ExecutorServiceAccount,
        authorizers: Authorizers,
        since: Instant,
    ) -> (HashMap<AccessQuestion, bool>, u64) {
        let mut executors = self.executors();
        let executor = executors.entry(account.clone()).or_default();
        executor.answers.retain(|_, answer| match authorizers {
            Authorizers::Other => answer.asked.elapsed() <= OTHER_ANSWERS,
            // Only what RBAC grants is asked, so a no means that the API server lags behind: it is asked again.
            Authorizers::Rbac => answer.is_allowed,
        });
        let answers = executor
            .answers
            .iter()
            .filter(|(_, answer)| answer.asked >= since)
            .map(|(question, answer)| (question.clone(), answer.is_allowed))
            .collect();
        (answers, executor.epoch)
    }

    /// Keeps answers, unless RBAC has changed since that epoch.
    pub fn keep_answers(
        &self,
        account: &ExecutorServiceAccount,
        epoch: u64,
        answers: Vec<(AccessQuestion, AccessAnswer)>,
    ) {
        let mut executors = self.executors();
        let executor = executors.entry(account.clone()).or_default();
        if executor.epoch == epoch {
            executor.answers.extend(answers);
        }
    }

    /// After a change of RBAC: drops the answers of every executor that it affects and queues its works, and the works that
    /// rest on the role that changed.
    pub fn invalidate(&self, affected: &AffectedSubjects, changed: Option<&RbacId>) {
        for (account, executor) in self.executors().iter_mut() {
            let is_affected = affected.include(account);
            if is_affected {
                executor.answers.clear();
                executor.epoch += 1;
                executor.changed = Some(Instant::now());
            }
            for (key, work) in &mut executor.works {
                let rests_on_it = changed.is_some_and(|id| work.roles.contains(id));
                if rests_on_it {
                    work.epoch += 1;
                }
                if is_affected || rests_on_it {
                    self.queue.add(key.clone());
                }
            }
        }
    }

    /// Drops every answer: changes of RBAC may have gone unseen.
    pub fn invalidate_all(&self) {
        for executor in self.executors().values_mut() {
            executor.answers.clear();
            executor.epoch += 1;
        }
    }

    /// Judges every work again: the agent's own objects changed, or all of RBAC is known now.
    pub fn judge_all_again(&self) {
        for executor in self.executors().values_mut() {
            executor.epoch += 1;
            for key in executor.works.keys() {
                self.queue.add(key.clone());
            }
        }
    }

    fn pending_lists(&self) -> MutexGuard<'_, PendingLists> {
        self.pending_lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more list has to complete before RBAC is known.
    pub fn expect_list(&self) {
        let mut pending = self.pending_lists();
        if pending.count == 0 {
            pending.since = Instant::now();
        }
        pending.count += 1;
    }

    /// A list is complete; after the last one the works that wait for it are judged.
    pub fn list_completed(&self) {
        let mut pending = self.pending_lists();
        pending.count = pending.count.saturating_sub(1);
        if pending.count == 0 {
            drop(pending);
            self.judge_all_again();
        }
    }

    /// For how long RBAC has not been known; `None` if it is.
    pub fn unknown_for(&self) -> Option<Duration> {
        let pending = self.pending_lists();
        (pending.count > 0).then(|| pending.since.elapsed())
    }
}
