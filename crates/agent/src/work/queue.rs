//! Which works need a look, and when: each at most once at a time, the same one never twice in the queue.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    future::Future,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// Keys that wait for a worker, now or later.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    queued: HashSet<K>,
    running: HashSet<K>,
    /// Keys that were added while they ran.
    again: HashSet<K>,
    /// The one time at which each delayed key is due.
    due: HashMap<K, Instant>,
    timers: BTreeSet<(Instant, K)>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                queued: HashSet::new(),
                running: HashSet::new(),
                again: HashSet::new(),
                due: HashMap::new(),
                timers: BTreeSet::new(),
            }),
            changed: Notify::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a look at this key, now.
    pub fn add(&self, key: K) {
        self.lock().add(key);
        self.changed.notify_one();
    }

    /// Asks for a look at this key after a delay, or earlier if that was asked for before.
    pub fn add_after(&self, key: K, delay: Duration) {
        let at = Instant::now() + delay;
        let mut state = self.lock();
        if state.queued.contains(&key) || state.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        if let Some(old) = state.due.insert(key.clone(), at) {
            state.timers.remove(&(old, key.clone()));
        }
        state.timers.insert((at, key));
        drop(state);
        self.changed.notify_one();
    }

    async fn next(&self) -> K {
        loop {
            let wait = {
                let mut state = self.lock();
                state.wake(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    state.queued.remove(&key);
                    state.running.insert(key.clone());
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.timers.first().map(|(at, _)| *at)
            };
            let changed = self.changed.notified();
            match wait {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    fn done(&self, key: &K) {
        let mut state = self.lock();
        state.running.remove(key);
        if state.again.remove(key) {
            state.add(key.clone());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Serves the queue with so many workers until shutdown.
    pub async fn serve<F, Fut>(&self, workers: usize, shutdown: &CancellationToken, handle: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = ()>,
    {
        let handle = &handle;
        futures::future::join_all((0..workers).map(|_| async move {
            loop {
                let key = tokio::select! {
                    () = shutdown.cancelled() => return,
                    key = self.next() => key,
                };
                handle(key.clone()).await;
                self.done(&key);
            }
        }))
        .await;
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn add(&mut self, key: K) {
        if let Some(at) = self.due.remove(&key) {
            self.timers.remove(&(at, key.clone()));
        }
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn a_key_is_never_handled_twice_at_once_and_none_is_lost() {
        let queue = Arc::new(Queue::default());
        let shutdown = CancellationToken::new();
        let (handled, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        queue.add("a");
        queue.add("a");
        queue.add_after("b", Duration::from_mins(1));
        queue.add_after("b", Duration::from_millis(300));
        queue.add_after("b", Duration::from_secs(90));
        let serve = queue.serve(4, &shutdown, |key| {
            let (handled, running, queue, shutdown) =
                (handled.clone(), running.clone(), queue.clone(), shutdown.clone());
            async move {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "{key} runs alone");
                let turn = handled.fetch_add(1, Ordering::SeqCst);
                if turn == 0 {
                    queue.add("a");
                    queue.add("a");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                if key == "b" {
                    shutdown.cancel();
                }
            }
        });
        let start = Instant::now();
        serve.await;
        assert_eq!(handled.load(Ordering::SeqCst), 3);
        assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < Duration::from_secs(30));
    }
}
