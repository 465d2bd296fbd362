//! The run loop of a controller: caches bring keys into its queue, and each key is reconciled until it succeeds.

use std::{fmt::Debug, future::Future, hash::Hash, pin::Pin, sync::Arc};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    cache::{Cache, Change, Event, Subscription},
    clock::Clock,
    events::Events,
    health::{Gate, Health},
    metrics::Meter,
    queue::{Next, Queue},
};

type Ready = Pin<Box<dyn Future<Output = ()> + Send>>;
type About<K> = Arc<dyn Fn(&K) -> Option<ObjectReference> + Send + Sync>;

/// A controller that is to be run.
#[must_use = "nothing is reconciled before it is run"]
pub struct Controller<K> {
    name: &'static str,
    health: Health,
    meter: Meter,
    queue: Queue<K>,
    /// What must be listed before anything is reconciled.
    awaited: Vec<(Gate, Ready)>,
    subscriptions: Vec<Subscription>,
    reporter: Option<(Events, About<K>)>,
}

impl<K: Clone + Debug + Eq + Hash + Send + Sync + 'static> Controller<K> {
    /// A controller of that name, which is the name of its folder.
    pub fn new(name: &'static str, health: &Health) -> Self {
        Self::with_clock(name, health, Clock::System)
    }

    /// The same with a clock of its own.
    pub fn with_clock(name: &'static str, health: &Health, clock: Clock) -> Self {
        Self {
            name,
            health: health.clone(),
            meter: health.meter(name),
            queue: Queue::with_clock(clock),
            awaited: Vec::new(),
            subscriptions: Vec::new(),
            reporter: None,
        }
    }

    /// The queue, for keys that no cache brings.
    pub fn queue(&self) -> Queue<K> {
        self.queue.clone()
    }

    /// Reconciles the keys that each change concerns, and nothing before the cache has shown its first list.
    pub fn watch<V, I>(
        mut self,
        cache: &Cache<V>,
        keys: impl Fn(&Change<'_, V>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        V: Send + Sync + 'static,
        I: IntoIterator<Item = K>,
    {
        let gate = self.health.gate(format!("{}: watch {}", self.name, cache.what()));
        let ready = cache.clone();
        self.awaited
            .push((gate, Box::pin(async move { ready.ready().await })));
        self.watch_unawaited(cache, keys)
    }

    /// The same for a cache that the controller can do without for a while.
    pub fn watch_unawaited<V, I>(
        mut self,
        cache: &Cache<V>,
        keys: impl Fn(&Change<'_, V>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        V: Send + Sync + 'static,
        I: IntoIterator<Item = K>,
    {
        let queue = self.queue.clone();
        self.subscriptions.push(cache.subscribe(move |event| {
            if let Event::Changed(change) = event {
                for key in keys(change) {
                    if change.input_changed() {
                        queue.input_changed(&key);
                    }
                    queue.add(key);
                }
            }
        }));
        self
    }

    /// Reconciles these keys whenever a list of the cache is complete: the first one, and each after an outage.
    pub fn on_list<V, I>(mut self, cache: &Cache<V>, keys: impl Fn() -> I + Send + Sync + 'static) -> Self
    where
        V: Send + Sync + 'static,
        I: IntoIterator<Item = K>,
    {
        let queue = self.queue.clone();
        self.subscriptions.push(cache.subscribe(move |event| {
            if let Event::Listed = event {
                keys().into_iter().for_each(|key| queue.add(key));
            }
        }));
        self
    }

    /// Tells of failures by events about the object that a key stands for.
    pub fn report(
        mut self,
        events: Events,
        about: impl Fn(&K) -> Option<ObjectReference> + Send + Sync + 'static,
    ) -> Self {
        self.reporter = Some((events, Arc::new(about)));
        self
    }

    /// Reconciles at most `concurrency` keys side by side, until shutdown. A failed key is logged and retried.
    pub async fn run<F, Fut>(mut self, concurrency: usize, shutdown: &CancellationToken, reconcile: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Result<Next, Error>> + Send + 'static,
    {
        for (gate, ready) in std::mem::take(&mut self.awaited) {
            if shutdown.run_until_cancelled(ready).await.is_none() {
                return;
            }
            gate.open();
        }
        let name = self.name;
        let run = |key: K| {
            let (done, reporter) = (reconcile(key.clone()), self.reporter.clone());
            async move {
                match done.await {
                    Ok(next) => next,
                    Err(error) => {
                        tell_failure(name, &key, &error, reporter).await;
                        Next::Retry
                    }
                }
            }
        };
        self.queue.run(concurrency, shutdown, &self.meter, run).await;
    }
}

/// Says that a reconcile failed and is tried again: in the log, and where the object is described. A conflict is no
/// reason to warn: the event of the other write brings the key back.
async fn tell_failure<K: Debug>(
    controller: &'static str,
    key: &K,
    error: &Error,
    reporter: Option<(Events, About<K>)>,
) {
    if error.is_code(409) || matches!(error, Error::Busy(_)) {
        tracing::debug!(controller, ?key, %error, "will try again");
        return;
    }
    tracing::warn!(controller, ?key, %error, "will try again");
    if let Some((events, about)) = reporter
        && let Some(about) = about(key)
    {
        events.failed(&about, error).await;
    }
}
