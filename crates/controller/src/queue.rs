//! A queue of keys: each key waits at most once, runs at most once at a time, and is retried later and later.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{backoff::Backoff, metrics::Meter};

/// Retries start here.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Retries are never further apart.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// What a reconcile asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the next change will come by a watch.
    Wait,
    /// To run again after this time, because time itself changes the answer.
    After(Duration),
    /// To run again later and later until it succeeds.
    Retry,
}

/// Keys to work on. Cheap to clone; it holds each key at most once, so it is bounded by the number of objects.
#[derive(Debug)]
pub struct Queue<K> {
    state: Arc<Mutex<State<K>>>,
    changed: Arc<Notify>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            changed: self.changed.clone(),
        }
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                ready: VecDeque::new(),
                waiting: HashSet::new(),
                running: HashSet::new(),
                later: HashMap::new(),
                timers: BTreeMap::new(),
                timers_made: 0,
                failures: HashMap::new(),
            })),
            changed: Arc::default(),
        }
    }
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// What is in `ready`, or runs and shall run again.
    waiting: HashSet<K>,
    running: HashSet<K>,
    /// The one time at which each delayed key is due, and the key to its timer.
    later: HashMap<K, (Instant, u64)>,
    timers: BTreeMap<(Instant, u64), K>,
    timers_made: u64,
    failures: HashMap<K, Backoff>,
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Returns whether somebody has to look at the queue. A key that waits now needs no timer.
    fn add(&mut self, key: K) -> bool {
        if let Some(timer) = self.later.remove(&key) {
            self.timers.remove(&timer);
        }
        let ready = self.waiting.insert(key.clone()) && !self.running.contains(&key);
        if ready {
            self.ready.push_back(key);
        }
        ready
    }

    fn add_at(&mut self, key: K, due: Instant) -> bool {
        if self.waiting.contains(&key) || self.later.get(&key).is_some_and(|(known, _)| *known <= due) {
            return false;
        }
        self.timers_made += 1;
        let timer = (due, self.timers_made);
        if let Some(old) = self.later.insert(key.clone(), timer) {
            self.timers.remove(&old);
        }
        self.timers.insert(timer, key);
        true
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    /// Puts a key into the queue. One that runs now will run once more.
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

    /// Forgets that a key failed: something changed, and its next retry comes soon.
    pub fn forgive(&self, key: &K) {
        self.lock().failures.remove(key);
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
        let mut tasks: JoinSet<(K, Duration, Next)> = JoinSet::new();
        loop {
            while tasks.len() < concurrency.max(1) {
                let Some(key) = self.take() else { break };
                let work = reconcile(key.clone());
                tasks.spawn(async move {
                    let began = Instant::now();
                    let next = work.await;
                    (key, began.elapsed(), next)
                });
            }
            meter.waiting(self.len());
            let due = self.next_due();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.changed.notified(), if tasks.len() < concurrency.max(1) => {}
                () = timer => {}
                // A panic of one reconcile is a bug of one object; its key stays in `running` and rests.
                Some(Ok((key, took, next))) = tasks.join_next(), if !tasks.is_empty() => {
                    meter.looked(took, next != Next::Retry);
                    self.done(key, next);
                }
            }
        }
    }

    fn take(&self) -> Option<K> {
        let mut state = self.lock();
        let now = Instant::now();
        while let Some(entry) = state.timers.first_entry()
            && entry.key().0 <= now
        {
            let key = entry.get().clone();
            state.add(key);
        }
        let key = state.ready.pop_front()?;
        state.waiting.remove(&key);
        state.running.insert(key.clone());
        Some(key)
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().timers.first_key_value().map(|((due, _), _)| *due)
    }

    fn done(&self, key: K, next: Next) {
        let mut state = self.lock();
        state.running.remove(&key);
        if state.waiting.contains(&key) {
            state.ready.push_back(key.clone());
        }
        let delay = match next {
            Next::Retry => {
                let backoff = state
                    .failures
                    .entry(key.clone())
                    .or_insert_with(|| Backoff::new(FIRST_RETRY, LAST_RETRY));
                Some(backoff.next_delay())
            }
            Next::Wait => {
                state.failures.remove(&key);
                None
            }
            Next::After(delay) => {
                state.failures.remove(&key);
                Some(delay)
            }
        };
        if let Some(delay) = delay {
            state.add_at(key, Instant::now() + delay);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::health::Health;

    fn meter() -> Meter {
        Health::default().meter("test")
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_runs_once_at_a_time_and_again_if_added_meanwhile() {
        let queue = Queue::default();
        let (runs, parallel) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let shutdown = CancellationToken::new();
        queue.add("a");
        queue.add("a");
        let stop = shutdown.clone();
        let again = queue.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            again.add("a");
            tokio::time::sleep(Duration::from_millis(100)).await;
            stop.cancel();
        });
        let (seen, live) = (runs.clone(), parallel.clone());
        queue
            .run(8, &shutdown, &meter(), move |_| {
                let (seen, live) = (seen.clone(), live.clone());
                async move {
                    assert_eq!(live.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    live.fetch_sub(1, Ordering::SeqCst);
                    seen.fetch_add(1, Ordering::SeqCst);
                    Next::Wait
                }
            })
            .await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_retried_until_it_succeeds() {
        let queue = Queue::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let shutdown = CancellationToken::new();
        queue.add(1);
        let stop = shutdown.clone();
        let seen = runs.clone();
        queue
            .run(1, &shutdown, &meter(), move |_| {
                let (seen, stop) = (seen.clone(), stop.clone());
                async move {
                    if seen.fetch_add(1, Ordering::SeqCst) < 3 {
                        return Next::Retry;
                    }
                    stop.cancel();
                    Next::Wait
                }
            })
            .await;
        assert_eq!(runs.load(Ordering::SeqCst), 4);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_many_delays_counts_and_a_key_that_waits_needs_none() {
        let queue = Queue::default();
        let shutdown = CancellationToken::new();
        queue.add_after("a", Duration::from_mins(1));
        queue.add_after("a", Duration::from_millis(300));
        queue.add_after("a", Duration::from_secs(90));
        queue.add_after("b", Duration::from_secs(5));
        queue.add("b");
        queue.add_after("b", Duration::from_secs(5));
        let start = Instant::now();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let (stop, seen) = (shutdown.clone(), ran.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(5)).await;
            stop.cancel();
        });
        queue
            .run(2, &shutdown, &meter(), move |key| {
                let seen = seen.clone();
                async move {
                    seen.lock().unwrap().push((key, start.elapsed().as_millis()));
                    Next::Wait
                }
            })
            .await;
        assert_eq!(*ran.lock().unwrap(), [("b", 0), ("a", 300)]);
    }
}
