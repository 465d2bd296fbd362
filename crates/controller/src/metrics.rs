//! What every process counts: reconciles and restarts by controller, requests by server.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use http::Request;
use kube::{Client, client::Body};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

/// From a look at the cache to a work of a thousand objects.
const SECONDS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    controller: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    server: &'static str,
    method: String,
    code: String,
}

/// The metrics of a process. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Family<Outcome, Counter>,
    seconds: Family<Controller, Histogram>,
    waiting: Family<Controller, Gauge>,
    restarts: Family<Controller, Counter>,
    requests: Family<Answer, Counter>,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn new(registry: &Mutex<Registry>) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            waiting: Family::default(),
            restarts: Family::default(),
            requests: Family::default(),
        };
        let mut registry = registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("writ_build", "What runs here", version);
        registry.register(
            "writ_reconciles",
            "Objects looked at, by what came of it: ok, or retry",
            metrics.reconciles.clone(),
        );
        registry.register(
            "writ_reconcile_seconds",
            "How long a look at an object took",
            metrics.seconds.clone(),
        );
        registry.register(
            "writ_waiting",
            "Objects that wait to be looked at",
            metrics.waiting.clone(),
        );
        registry.register(
            "writ_controller_restarts",
            "Controllers that failed and were started again",
            metrics.restarts.clone(),
        );
        registry.register(
            "writ_requests",
            "Requests to API servers by answer; 0 is none",
            metrics.requests.clone(),
        );
        drop(registry);
        metrics
    }

    pub(crate) fn meter(&self, controller: &str) -> Meter {
        let metrics = self.clone();
        let controller = Controller {
            controller: controller.into(),
        };
        Meter { metrics, controller }
    }

    /// A client whose requests are counted; a watch counts when it is answered.
    pub(crate) fn counted(&self, server: &'static str, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let requests = self.requests.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, requests) = (client.clone(), requests.clone());
            async move {
                let method = request.method().to_string();
                let answer = client.send(request).await;
                let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                let code = code.to_string();
                requests.get_or_create(&Answer { server, method, code }).inc();
                answer
            }
        });
        Client::new(service, namespace)
    }
}

/// Counts what one controller does.
#[derive(Clone, Debug)]
pub struct Meter {
    metrics: Metrics,
    controller: Controller,
}

impl Meter {
    /// An object was looked at; `done` says that it need not be tried again.
    pub fn looked(&self, took: Duration, done: bool) {
        let outcome = Outcome {
            controller: self.controller.controller.clone(),
            result: if done { "ok" } else { "retry" },
        };
        self.metrics.reconciles.get_or_create(&outcome).inc();
        let seconds = self.metrics.seconds.get_or_create(&self.controller);
        seconds.observe(took.as_secs_f64());
    }

    /// The same for a look that began then.
    pub fn looked_since(&self, began: Instant, done: bool) {
        self.looked(began.elapsed(), done);
    }

    /// So many objects wait.
    pub fn waiting(&self, count: usize) {
        let gauge = self.metrics.waiting.get_or_create(&self.controller);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The controller failed and starts again.
    pub fn restarted(&self) {
        self.metrics.restarts.get_or_create(&self.controller).inc();
    }
}
