//! The heartbeat of a cluster: its lease on the hub, and the health of its API server.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;
use writ_api::cluster::ManagedCluster;
use writ_controller::{backoff::Backoff, error::Context as _};

use super::api_health;
use crate::Context;

const LEASE: &str = "managed-cluster-lease";
/// For how long the cluster's API server may fail before the cluster counts as unavailable.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause after a failure.
const SOON: Duration = Duration::from_secs(5);
/// The longest pause while renewing the lease fails.
const LATEST: Duration = Duration::from_secs(30);

/// What is known of the cluster's API server.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Why it counts as unavailable, if it does.
    pub problem: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Since when it has been failing.
    failing_since: Option<Instant>,
}

/// Renews the lease.
pub struct Heartbeat {
    hub: Client,
    spoke: Client,
    cluster: String,
    pace: Mutex<Pace>,
}

impl Heartbeat {
    /// The heartbeat of the agent's cluster.
    pub fn new(context: &Context) -> Self {
        Self {
            hub: context.hub.clone(),
            spoke: context.spoke.clone(),
            cluster: context.options.cluster_name.clone(),
            pace: Mutex::default(),
        }
    }

    /// Renews the lease and asks for the health of the cluster's API server; returns that and the pause until the next
    /// heartbeat.
    pub async fn beat(&self, before: Option<Health>, every: Duration) -> (Health, Duration) {
        let (name, leases) = (
            &self.cluster,
            Api::<Lease>::namespaced(self.hub.clone(), &self.cluster),
        );
        let patch = json!({"spec": {"renewTime": MicroTime(Timestamp::now()), "holderIdentity": LEASE}});
        let renewed = leases
            .patch(LEASE, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context(|| format!("renew Lease {name}/{LEASE}"));
        if let Err(error) = &renewed {
            tracing::warn!(%error, "trying again soon");
        }
        let health = self.ask(before).await;
        let is_healthy = health.failing_since.is_none();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        (health, pace.pause(every, renewed.is_ok(), is_healthy))
    }

    async fn ask(&self, before: Option<Health>) -> Health {
        let first = before.is_none();
        let mut health = before.unwrap_or_default();
        match api_health::ask(&self.spoke).await {
            Ok(()) => {
                (health.failing_since, health.problem) = (None, None);
                // Without an answer the version is what it was.
                if let Ok(version) = self.spoke.apiserver_version().await {
                    health.version = Some(version.git_version);
                }
            }
            Err(error) => {
                let since = *health.failing_since.get_or_insert_with(Instant::now);
                if first || health.problem.is_some() || since.elapsed() >= PATIENCE {
                    let code = error.code().unwrap_or_default();
                    health.problem = Some(format!("status code: {code}, {error}"));
                }
                tracing::warn!(%error, "the API server of this cluster is unhealthy");
            }
        }
        health
    }
}

/// How often the hub wants the lease to be renewed.
pub fn interval(cluster: Option<&ManagedCluster>) -> Duration {
    cluster
        .and_then(|cluster| cluster.spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
        .map_or(Duration::from_mins(1), Duration::from_secs)
}

/// The pauses between heartbeats.
struct Pace {
    after_failures: Backoff,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            after_failures: Backoff::new(SOON, LATEST),
        }
    }
}

impl Pace {
    /// The pause after a heartbeat: as the hub asks if all is well, and never longer. A lease that could not be renewed, which
    /// may be missing for long, is retried with growing pauses. An unhealthy API server is asked again soon.
    fn pause(&mut self, every: Duration, renewed: bool, is_healthy: bool) -> Duration {
        let again = if renewed {
            self.after_failures.reset();
            every
        } else {
            self.after_failures.next_delay()
        };
        every.min(again).min(if is_healthy { every } else { SOON })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_mins(1);

    /// Returns true if a pause is this long, within the jitter of a fifth.
    fn about(pause: Duration, seconds: u64) -> bool {
        let wanted = Duration::from_secs(seconds);
        pause >= wanted.mul_f64(0.79) && pause <= wanted.mul_f64(1.21)
    }

    #[test]
    fn lease_that_stays_missing_is_renewed_with_growing_pauses() {
        let mut pace = Pace::default();
        for seconds in [5, 10, 20, 30, 30] {
            let pause = pace.pause(EVERY, false, true);
            assert!(about(pause, seconds), "{pause:?} instead of {seconds} s");
        }
        assert_eq!(pace.pause(EVERY, true, true), EVERY);
        // After a success the pauses start anew.
        assert!(about(pace.pause(EVERY, false, true), 5));
    }

    #[test]
    fn pause_is_never_longer_than_the_hub_asks_for() {
        let mut pace = Pace::default();
        let every = Duration::from_secs(2);
        for renewed in [false, false, false, true] {
            assert_eq!(pace.pause(every, renewed, true), every);
            assert_eq!(pace.pause(every, renewed, false), every);
        }
    }

    #[test]
    fn unhealthy_cluster_is_asked_again_soon() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(EVERY, true, false), SOON);
        // Not less often if the hub fails too.
        for _ in 0..5 {
            assert!(pace.pause(EVERY, false, false) <= SOON);
        }
    }
}
