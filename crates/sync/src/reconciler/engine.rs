//! The loop of one reconciler: wait for an event, then observe, plan, execute and report until nothing is left to do.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, watch as channel},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use writ_api::kpt::ResourceGroup;
use writ_controller::{Error, ObjectId, backoff::Backoff};

use super::{
    apply::inventory,
    desired::Desired,
    drift::Watches,
    error::{Code, Problem},
    fetch::{self, FetchResult, Read, SourceReader},
    finalize::finalize,
    observe::{await_kinds, observe, resolve_kinds},
    observed::Observed,
    plan,
    session::Session,
    shared::{Account, Shared},
    status::{self, Report},
};
use crate::model::{RECONCILER_FINALIZER, Sync, SyncId};

/// Objects that no watch covers are compared this often.
const UNWATCHED: Duration = Duration::from_mins(1);
/// The pauses between retries of what failed.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// The most rounds of one pass: definitions, the objects of their kinds, and objects of namespaces that had to be created
/// need a round each.
const ROUNDS: usize = 6;

/// The inputs of a reconciler.
pub struct Inputs {
    /// The sync, as it was last seen.
    pub sync: channel::Receiver<Arc<Sync>>,
    /// The inventory, as it was last seen.
    pub inventory: channel::Receiver<Option<Arc<ResourceGroup>>>,
    /// Rights of the account may have changed.
    pub poke: Arc<Notify>,
    /// Ends the reconciler.
    pub stop: CancellationToken,
}

/// Runs a reconciler until it is stopped. A new account is obtained when the token of the old one is refused.
pub async fn run(shared: Arc<Shared>, mut inputs: Inputs) {
    let stop = inputs.stop.clone();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        let sync = inputs.sync.borrow_and_update().clone();
        match shared.account(&sync.id).await {
            Ok(account) => {
                backoff.reset();
                let engine = Engine::new(shared.clone(), sync, account);
                if stop.run_until_cancelled(engine.run(&mut inputs)).await.is_none() {
                    return;
                }
            }
            Err(error) => tracing::warn!(sync = %sync.id, %error, "cannot get a token, will try again"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = inputs.poke.notified() => {}
            () = tokio::time::sleep(backoff.next_delay()) => {}
        }
    }
}

/// One reconciler.
struct Engine {
    session: Session,
    source: SourceReader,
    desired: Desired,
    observed: Observed,
    watches: Watches,
    report: Report,
    schedule: Schedule,
}

/// When a reconciler acts without an event.
struct Schedule {
    /// When the source is read again.
    fetch_at: Instant,
    /// When objects that no watch covers are compared again.
    recheck_at: Instant,
    /// When failures are retried.
    retry_at: Option<Instant>,
    backoff: Backoff,
}

impl Schedule {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            fetch_at: now,
            recheck_at: now + UNWATCHED,
            retry_at: None,
            backoff: Backoff::new(FIRST_RETRY, LAST_RETRY),
        }
    }

    /// Plans the next retry, if one is needed.
    fn plan_retry(&mut self, is_needed: bool) {
        if !is_needed {
            self.backoff.reset();
            self.retry_at = None;
        } else if self.retry_at.is_none() {
            self.retry_at = Some(Instant::now() + self.backoff.next_delay());
        }
    }

    /// Something changed that may cure failures: the pauses between retries start again.
    fn reset_retries(&mut self) {
        self.backoff.reset();
        self.retry_at = None;
    }
}

/// The share of its period after which a sync reads its source for the second time. Syncs that start together then read
/// one after another, and none waits longer than its period.
fn first_share(id: &SyncId) -> f64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() % 1000).unwrap_or_default() + 1) / 1000.0
}

impl Engine {
    fn new(shared: Arc<Shared>, sync: Arc<Sync>, account: Account) -> Self {
        let report = Report::restored(&sync.status);
        Self {
            source: SourceReader::new(report.git.clone()),
            desired: Desired::new(sync.id.clone()),
            observed: Observed::default(),
            watches: Watches::new(account.client.clone(), &sync.id),
            session: Session::new(shared, sync, account),
            report,
            schedule: Schedule::new(),
        }
    }

    /// Works until the token of the account is refused.
    async fn run(mut self, inputs: &mut Inputs) {
        let mut share = first_share(self.session.id());
        loop {
            // Boxed: the state of an idle reconciler stays small.
            let needs_retry = if self.session.sync.deleting() {
                self.session.sync.has_finalizer(RECONCILER_FINALIZER) && !Box::pin(self.finalize()).await
            } else {
                self.start_what_is_due(&mut share);
                !Box::pin(self.pass()).await
            };
            if self.observed.is_unauthorized {
                tracing::info!(sync = %self.session.id(), "the token was refused, asking for another one");
                return;
            }
            self.schedule.plan_retry(needs_retry);
            Box::pin(self.wait(inputs)).await;
        }
    }

    fn start_what_is_due(&mut self, share: &mut f64) {
        let now = Instant::now();
        if now >= self.schedule.fetch_at && !self.source.is_reading() {
            let period = fetch::period(&self.session.sync);
            self.schedule.fetch_at = now + period.mul_f64(std::mem::replace(share, 1.0));
            let known = self.desired.commit.as_deref().zip(self.desired.source.as_ref());
            let Session { shared, sync, .. } = &self.session;
            self.source.start(shared, self.session.client(), sync, known);
        }
        if now >= self.schedule.recheck_at {
            self.observed.recheck_unwatched(&self.desired);
            self.schedule.recheck_at = now + UNWATCHED;
        }
    }

    /// Waits until something can have changed.
    async fn wait(&mut self, inputs: &mut Inputs) {
        let is_deleting = self.session.sync.deleting();
        let retry_at = self.schedule.retry_at;
        let due = retry_at.unwrap_or_else(|| Instant::now() + UNWATCHED);
        loop {
            tokio::select! {
                changed = inputs.sync.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    let sync = inputs.sync.borrow_and_update().clone();
                    if self.take_sync(sync) {
                        return;
                    }
                }
                Ok(()) = inputs.inventory.changed(), if !is_deleting => {
                    let seen = inputs.inventory.borrow_and_update().clone();
                    if seen.is_some_and(|seen| self.see_inventory(&seen)) {
                        return;
                    }
                }
                () = inputs.poke.notified(), if retry_at.is_some() => {
                    self.schedule.reset_retries();
                    return self.observed.retry(&self.desired);
                }
                () = tokio::time::sleep_until(due), if retry_at.is_some() => {
                    self.schedule.retry_at = None;
                    return self.observed.retry(&self.desired);
                }
                () = tokio::time::sleep_until(self.schedule.fetch_at), if !is_deleting && !self.source.is_reading() => {
                    return;
                }
                result = self.source.result(), if !is_deleting => return self.accept(result).await,
                seen = self.watches.next(), if !is_deleting => {
                    self.observed.see(&self.desired, seen, Instant::now());
                    while let Some(seen) = self.watches.try_next() {
                        self.observed.see(&self.desired, seen, Instant::now());
                    }
                    return;
                }
            }
        }
    }

    /// Takes over the sync as it is now. Returns true if something else than our own report has changed.
    fn take_sync(&mut self, sync: Arc<Sync>) -> bool {
        let (new, old) = (&sync, &self.session.sync);
        let is_changed = new.generation() != old.generation()
            || new.metadata.annotations != old.metadata.annotations
            || new.deleting() != old.deleting()
            || new.metadata.uid != old.metadata.uid
            || new.metadata.finalizers != old.metadata.finalizers;
        self.session.sync = sync;
        if is_changed {
            self.schedule.fetch_at = Instant::now();
            self.schedule.reset_retries();
            self.observed.retry(&self.desired);
        }
        is_changed
    }

    fn see_inventory(&mut self, group: &ResourceGroup) -> bool {
        let version = group.metadata.resource_version.as_deref().unwrap_or_default();
        self.observed.see_inventory(&inventory::objects(group), version)
    }

    /// Takes over the result of a fetch.
    async fn accept(&mut self, result: FetchResult) {
        let Session { shared, sync, .. } = &self.session;
        match self.source.accept(shared, sync, result) {
            Read::Outdated => self.schedule.fetch_at = Instant::now(),
            Read::Unchanged => {}
            Read::Commit(fetched, source) => {
                self.desired.adopt(fetched, *source);
                resolve_kinds(&self.session, &mut self.desired).await;
                self.observed.start_commit(&self.desired);
            }
        }
    }

    /// Brings the cluster to what is desired, and reports. Returns true if no retry is needed.
    async fn pass(&mut self) -> bool {
        self.observed.fights.forget_calm(Instant::now());
        let converged = if self.desired.is_applicable() {
            self.converge().await
        } else {
            Ok(true)
        };
        self.report.is_busy = false;
        let is_done = matches!(converged, Ok(true))
            && !plan::needs_retry(&self.desired, &self.observed, Instant::now());
        self.write_report(converged.err()).await;
        is_done
    }

    /// Plans and executes until no action is left. Returns false if objects change faster than that.
    async fn converge(&mut self) -> Result<bool, Problem> {
        for _ in 0..ROUNDS {
            let (desired, observed, watches) = (&mut self.desired, &mut self.observed, &mut self.watches);
            let known = observe(&self.session, desired, observed, watches).await;
            known.map_err(|error| self.api_problem(&error))?;
            let plan = plan::plan(&self.desired, &self.observed);
            if let Some(refusal) = plan.refusal {
                return Err(refusal);
            }
            let actions = plan.actions;
            if actions.is_empty() {
                self.report.sync.commit.clone_from(&self.desired.commit);
                self.report.objects = plan.inventory.len();
                self.write_inventory(plan.inventory).await?;
                return Ok(true);
            }
            if plan.changes > 1 && self.report.sync.commit != self.desired.commit && !self.report.is_busy {
                self.report.is_busy = true;
                self.write_report(None).await;
            }
            self.write_inventory(plan.inventory).await?;
            let definitions = actions.definitions.clone();
            let executor = self.session.executor();
            let (desired, observed) = (&self.desired, &mut self.observed);
            let pending = executor.execute(actions, desired, observed).await;
            if !definitions.is_empty() {
                let watches = &mut self.watches;
                await_kinds(&self.session, &definitions, pending, desired, observed, watches).await;
            }
        }
        Ok(false)
    }

    /// Removes every object of the sync. Returns true if that is done and reported.
    async fn finalize(&mut self) -> bool {
        // Nothing is watched or applied any more.
        self.watches.retain(&BTreeSet::new());
        self.observed.watches.clear();
        self.desired.declared.clear();
        finalize(&self.session, &mut self.observed, &mut self.report).await
    }

    async fn write_inventory(&mut self, objects: BTreeSet<ObjectId>) -> Result<(), Problem> {
        let known = &self.observed.inventory;
        if known.objects.as_ref() == Some(&objects) && !known.is_changed {
            return Ok(());
        }
        match inventory::write(self.session.client(), self.session.id(), &objects).await {
            Ok(version) => {
                self.observed.record_inventory(objects, version);
                Ok(())
            }
            Err(error) => {
                self.observed.inventory.objects = None;
                Err(self.api_problem(&error))
            }
        }
    }

    fn api_problem(&mut self, error: &Error) -> Problem {
        self.observed.is_unauthorized |= error.is_code(401);
        Problem::new(Code::ApiServer, error.to_string())
    }

    async fn write_report(&mut self, failure: Option<Problem>) {
        let generation = self.session.sync.generation();
        let (source, desired, observed) = (&self.source, &self.desired, &mut self.observed);
        self.report.update(source, desired, observed, generation, failure);
        status::send(&self.session, observed, &self.report).await;
    }
}
