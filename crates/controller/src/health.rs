//! Readiness and metrics of a process: it is ready when every watch that it needs is initialised.
//!
//! A controller counts from the moment that it is to run, not from the moment that it names its first watch. A replica
//! that waits for its lease runs no controllers: it is ready when all that replicas do without one is.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::metrics::{Meter, Metrics};

/// What is known of a process: which parts are ready, and its metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Health {
    gates: Arc<watch::Sender<Gates>>,
    registry: Arc<Mutex<Registry>>,
    metrics: Metrics,
}

impl Default for Health {
    fn default() -> Self {
        let registry = Arc::default();
        Self {
            gates: Arc::new(watch::Sender::default()),
            metrics: Metrics::new(&registry),
            registry,
        }
    }
}

/// One thing that must be initialised before the process is ready. Dropping it unopened leaves it closed.
#[derive(Debug)]
pub struct Gate {
    name: String,
    gates: Arc<watch::Sender<Gates>>,
}

/// What has to be initialised, by name.
type Gates = BTreeMap<String, GateState>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GateState {
    open: bool,
    /// The controller that it belongs to.
    part: Option<&'static str>,
}

tokio::task_local! {
    /// The controller that is running.
    static PART: &'static str;
}

fn are_open(gates: &Gates) -> bool {
    !gates.is_empty() && gates.values().all(|gate| gate.open)
}

impl Gate {
    /// Says that this part is initialised.
    pub fn open(&self) {
        self.gates.send_if_modified(|gates| {
            let gate = gates.get_mut(&self.name).filter(|gate| !gate.open);
            gate.map(|gate| gate.open = true).is_some()
        });
    }
}

impl Health {
    /// Adds a part that must be initialised, such as `watch ManifestWorks`.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let name = name.into();
        let part = PART.try_with(|part| *part).ok();
        self.gates.send_modify(|gates| {
            let state = GateState { open: false, part };
            gates.entry(name.clone()).or_insert(state);
            // The controller has said what it needs: it is not waited for as a whole any more.
            gates
                .retain(|name, gate| gate.part.is_none() || gate.part != part || Some(name.as_str()) != part);
        });
        Gate {
            name,
            gates: self.gates.clone(),
        }
    }

    /// Says that a controller is to run: nothing is ready before it has said what it needs.
    pub fn expect(&self, controller: &'static str) {
        let state = GateState {
            open: false,
            part: Some(controller),
        };
        self.gates.send_modify(|gates| {
            gates.entry(controller.into()).or_insert(state);
        });
    }

    /// Runs a controller; what it names in there is its own.
    pub async fn within<T>(&self, controller: &'static str, run: impl Future<Output = T>) -> T {
        PART.scope(controller, run).await
    }

    /// Says that a controller does not run any more: nothing waits for it.
    pub fn forget(&self, controller: &'static str) {
        self.gates
            .send_modify(|gates| gates.retain(|_, gate| gate.part != Some(controller)));
    }

    /// The parts that are not initialised yet.
    pub fn closed(&self) -> Vec<String> {
        self.gates
            .borrow()
            .iter()
            .filter(|(_, gate)| !gate.open)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Whether at least one part was named and all are initialised.
    pub fn is_ready(&self) -> bool {
        are_open(&self.gates.borrow())
    }

    /// Waits until at least one part was named and all are initialised.
    pub async fn ready(&self) {
        let mut gates = self.gates.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = gates.wait_for(are_open).await;
    }

    /// Counts what a controller does.
    pub fn meter(&self, controller: &str) -> Meter {
        self.metrics.meter(controller)
    }

    /// The same client; its requests are counted as those to `server`.
    pub fn counted(&self, server: &'static str, client: Client) -> Client {
        self.metrics.counted(server, client)
    }

    /// The metrics as OpenMetrics text.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn ready_means_every_gate_is_open() {
        let health = Health::default();
        assert!(!health.is_ready(), "nothing has started");
        let (a, b) = (health.gate("watch A"), health.gate("watch B"));
        a.open();
        assert_eq!(health.closed(), ["watch B"]);
        assert!(!health.is_ready());
        b.open();
        health.ready().await;
        assert!(health.is_ready());
    }

    #[tokio::test]
    async fn a_controller_is_waited_for_before_it_has_said_what_it_needs() {
        let health = Health::default();
        health.gate("leader election").open();
        assert_eq!(
            health.closed(),
            [""; 0],
            "a replica that waits for its lease is ready"
        );
        health.expect("work");
        health.expect("grants");
        health
            .within("work", async { health.gate("watch A").open() })
            .await;
        assert_eq!(health.closed(), ["grants"]);
        let gate = health.within("grants", async { health.gate("watch B") }).await;
        assert_eq!(health.closed(), ["watch B"]);
        // The lease is lost before the watch was there.
        health.forget("grants");
        gate.open();
        assert_eq!(health.closed(), [""; 0]);
        health.ready().await;
    }

    #[tokio::test]
    async fn what_was_done_is_counted_by_controller_and_by_answer() {
        let health = Health::default();
        let work = health.meter("work");
        work.looked(Duration::from_millis(3), true);
        work.looked(Duration::from_millis(7), false);
        work.waiting(5);
        work.restarted();
        let server = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let refused = http::Response::builder().status(403);
            Ok::<_, std::convert::Infallible>(refused.body(kube::client::Body::empty()).unwrap())
        });
        let client = health.counted("hub", Client::new(server, "default"));
        let request = http::Request::get("/api").body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await.unwrap_err();
        let text = health.metrics().unwrap();
        for line in [
            concat!("writ_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "writ_reconciles_total{controller=\"work\",result=\"ok\"} 1",
            "writ_reconciles_total{controller=\"work\",result=\"retry\"} 1",
            "writ_reconcile_seconds_bucket{le=\"0.005\",controller=\"work\"} 1",
            "writ_reconcile_seconds_count{controller=\"work\"} 2",
            "writ_waiting{controller=\"work\"} 5",
            "writ_controller_restarts_total{controller=\"work\"} 1",
            "writ_requests_total{server=\"hub\",method=\"GET\",code=\"403\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
