//! A queue of keys: each key waits at most once, runs at most once at a time, and is retried with growing pauses.

#[cfg(test)]
mod tests;
mod timers;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use self::timers::Timers;
use crate::{backoff::Backoff, clock::Clock, metrics::Meter};

/// Retries start here.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Retries are never further apart.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// What a reconcile asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the next change comes by a watch.
    Wait,
    /// To run again after this time, because time itself changes the answer.
    After(Duration),
    /// To run again at this time of the queue's clock.
    At(Timestamp),
    /// To run again with growing pauses until it succeeds.
    Retry,
}

/// Keys to reconcile. Cheap to clone; it holds each key at most once, so it is bounded by the number of objects.
#[derive(Debug)]
pub struct Queue<K> {
    state: Arc<Mutex<State<K>>>,
    changed: Arc<Notify>,
    clock: Clock,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            changed: self.changed.clone(),
            clock: self.clock,
        }
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self::with_clock(Clock::System)
    }
}

#[derive(Debug)]
struct State<K> {
    /// Keys that may run, the most urgent first, then in the order in which they came.
    ready: BTreeMap<(Timestamp, u64), K>,
    /// Keys in `ready`, and keys that run and shall run again.
    waiting: HashSet<K>,
    running: HashSet<K>,
    timers: Timers<Instant, K>,
    appointments: Timers<Timestamp, K>,
    failures: HashMap<K, Backoff>,
    urgencies: HashMap<K, Timestamp>,
    /// Since when the outcome of a key is held back.
    held_back: HashMap<K, Instant>,
    keys_made_ready: u64,
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Returns whether the key became ready. A key that waits needs no timer.
    fn add(&mut self, key: K) -> bool {
        self.timers.remove(&key);
        self.appointments.remove(&key);
        let ready = self.waiting.insert(key.clone()) && !self.running.contains(&key);
        if ready {
            self.make_ready(key);
        }
        ready
    }

    fn make_ready(&mut self, key: K) {
        self.keys_made_ready += 1;
        let urgency = self.urgencies.get(&key).copied().unwrap_or(Timestamp::MAX);
        self.ready.insert((urgency, self.keys_made_ready), key);
    }

    fn add_at(&mut self, key: K, due: Instant) -> bool {
        !self.waiting.contains(&key) && self.timers.set(key, due)
    }

    fn appoint(&mut self, key: K, due: Timestamp) -> bool {
        !self.waiting.contains(&key) && self.appointments.set(key, due)
    }
}

impl<K> Queue<K> {
    /// An empty queue whose times are those of `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                ready: BTreeMap::new(),
                waiting: HashSet::new(),
                running: HashSet::new(),
                timers: Timers::default(),
                appointments: Timers::default(),
                failures: HashMap::new(),
                urgencies: HashMap::new(),
                held_back: HashMap::new(),
                keys_made_ready: 0,
            })),
            changed: Arc::default(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    /// Puts a key into the queue. A key that runs now will run once more.
    pub fn add(&self, key: K) {
        if self.lock().add(key) {
            self.changed.notify_one();
        }
    }

    /// Puts a key into the queue at a later time, unless it waits already or is due earlier.
    pub fn add_after(&self, key: K, delay: Duration) {
        if self.lock().add_at(key, Instant::now() + delay) {
            self.changed.notify_one();
        }
    }

    /// Says that the input of a key really changed: its pauses after failures start anew. Besides success, nothing else
    /// may reset them.
    pub fn input_changed(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// Forgets everything about a key whose object is gone, except that it may wait or run.
    pub fn forget(&self, key: &K) {
        let mut state = self.lock();
        state.failures.remove(key);
        state.urgencies.remove(key);
        state.held_back.remove(key);
    }

    /// Of the keys that are ready, the one with the earliest urgency runs first; a key without one runs last.
    pub fn set_urgency(&self, key: &K, urgency: Option<Timestamp>) {
        let mut state = self.lock();
        match urgency {
            Some(urgency) => state.urgencies.insert(key.clone(), urgency),
            None => state.urgencies.remove(key),
        };
    }

    /// For how long an outcome that the next event is likely to replace may still be held back; `None` once `limit` has
    /// passed since the first call.
    pub fn hold_back(&self, key: &K, limit: Duration) -> Option<Duration> {
        let mut state = self.lock();
        let since = *state.held_back.entry(key.clone()).or_insert_with(Instant::now);
        let left = limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            state.held_back.remove(key);
        }
        left
    }

    /// Says that the outcome which was held back is not wanted any more.
    pub fn release(&self, key: &K) {
        self.lock().held_back.remove(key);
    }

    /// How many keys wait to run.
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether no key waits to run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs `reconcile` for each key, at most `concurrency` at a time, until shutdown.
    pub async fn run<F, Fut>(
        &self,
        concurrency: usize,
        shutdown: &CancellationToken,
        meter: &Meter,
        reconcile: F,
    ) where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Next> + Send + 'static,
    {
        let concurrency = concurrency.max(1);
        let mut tasks: JoinSet<(K, Duration, Next)> = JoinSet::new();
        loop {
            while tasks.len() < concurrency {
                let Some(key) = self.take() else { break };
                let work = reconcile(key.clone());
                tasks.spawn(async move {
                    let began = Instant::now();
                    let next = work.await;
                    (key, began.elapsed(), next)
                });
            }
            meter.waiting(self.len());
            let free = tasks.len() < concurrency;
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.changed.notified(), if free => {}
                () = self.due(), if free => {}
                // A panic of one reconcile is a bug of one object; its key stays in `running` and rests.
                Some(Ok((key, took, next))) = tasks.join_next(), if !tasks.is_empty() => {
                    meter.looked(took, next != Next::Retry);
                    self.finish(key, next);
                }
            }
        }
    }

    /// When the first key is due that runs at a time of the queue's clock.
    pub fn next_appointment(&self) -> Option<Timestamp> {
        self.lock().appointments.first()
    }

    /// Waits until the first timer or appointment is due.
    async fn due(&self) {
        let (timer, appointment) = {
            let state = self.lock();
            (state.timers.first(), state.appointments.first())
        };
        let timer = async {
            match timer {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = timer => {}
            () = self.clock.sleep_until(appointment) => {}
        }
    }

    /// Takes the next key that may run. Together with [`Queue::finish`] this is one step of [`Queue::run`], for simulations that
    /// decide themselves when it is taken.
    pub fn take(&self) -> Option<K> {
        let mut state = self.lock();
        let due = state.timers.take_due(&Instant::now());
        let appointed = state.appointments.take_due(&self.clock.now());
        for key in due.into_iter().chain(appointed) {
            state.add(key);
        }
        let (_, key) = state.ready.pop_first()?;
        state.waiting.remove(&key);
        state.running.insert(key.clone());
        Some(key)
    }

    /// Puts back a key that was taken.
    pub fn finish(&self, key: K, next: Next) {
        let mut state = self.lock();
        state.running.remove(&key);
        if state.waiting.contains(&key) {
            state.make_ready(key.clone());
        }
        if next != Next::Retry {
            state.failures.remove(&key);
        }
        match next {
            Next::Wait => {}
            Next::After(delay) => {
                state.add_at(key, Instant::now() + delay);
            }
            Next::At(time) => {
                state.appoint(key, time);
            }
            Next::Retry => {
                let backoff = state
                    .failures
                    .entry(key.clone())
                    .or_insert_with(|| Backoff::new(FIRST_RETRY, LAST_RETRY));
                let delay = backoff.next_delay();
                // Simulations turn the clock by hand, and expect retries to follow it.
                match self.clock {
                    Clock::Hand(_) => {
                        let due = self.clock.now().saturating_add(delay).unwrap_or(Timestamp::MAX);
                        state.appoint(key, due);
                    }
                    Clock::System | Clock::Simulated { .. } => {
                        state.add_at(key, Instant::now() + delay);
                    }
                }
            }
        }
    }
}
