//! A queue of keys: each key waits at most once, runs at most once at a time, and is retried later and later.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

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
    later: HashMap<K, Instant>,
    failures: HashMap<K, Backoff>,
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    /// Puts a key into the queue. One that runs now will run once more.
    pub fn add(&self, key: K) {
        let mut state = self.lock();
        if state.waiting.insert(key.clone()) && !state.running.contains(&key) {
            state.ready.push_back(key);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Puts a key into the queue at a later time, unless it is due earlier already.
    pub fn add_after(&self, key: K, delay: Duration) {
        let due = Instant::now() + delay;
        let mut state = self.lock();
        if state.later.get(&key).is_none_or(|known| *known > due) {
            state.later.insert(key, due);
            drop(state);
            self.changed.notify_one();
        }
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
    pub async fn run<F, Fut>(&self, concurrency: usize, shutdown: &CancellationToken, reconcile: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Next> + Send + 'static,
    {
        let mut tasks: JoinSet<(K, Next)> = JoinSet::new();
        loop {
            while tasks.len() < concurrency.max(1) {
                let Some(key) = self.take() else { break };
                let work = reconcile(key.clone());
                tasks.spawn(async move { (key, work.await) });
            }
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
                Some(Ok((key, next))) = tasks.join_next(), if !tasks.is_empty() => self.done(key, next),
            }
        }
    }

    fn take(&self) -> Option<K> {
        let mut state = self.lock();
        let now = Instant::now();
        let due: Vec<K> = state
            .later
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            state.later.remove(&key);
            if state.waiting.insert(key.clone()) && !state.running.contains(&key) {
                state.ready.push_back(key);
            }
        }
        let key = state.ready.pop_front()?;
        state.waiting.remove(&key);
        state.running.insert(key.clone());
        Some(key)
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().later.values().min().copied()
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
        drop(state);
        if let Some(delay) = delay {
            self.add_after(key, delay);
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
            .run(8, &shutdown, move |_| {
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
            .run(1, &shutdown, move |_| {
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
}
