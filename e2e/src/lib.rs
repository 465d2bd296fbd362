//! Scenarios, each run on the embedded API server and on a real one.
//!
//! A scenario is a function of a [`Fleet`]: a hub and managed clusters of either kind. It starts hub, agent and
//! sync with exactly the rights that `deploy/` ships, acts as a user would, and waits for what a user would see.
//!
//! To add one: write it in `src/scenarios/<feature>/`, list it in that folder's `all()`. It runs twice, as
//! `[embedded] name` and `[real] name`; the real one is ignored by name where there is no control plane. After all of
//! them, [`rights`] holds every right that `deploy/` ships against what the scenarios used.

pub mod repair;
pub mod rights;
pub mod scenarios;

use std::time::Duration;

use futures::future::BoxFuture;
use libtest_mimic::Trial;
use writ_testenv::harness;

pub use writ_fleet::{Cluster, Fleet, Kind, Running, cluster, fleet, manifests as yaml, wait};

/// One scenario.
pub struct Scenario {
    /// `feature/what_it_shows`.
    pub name: &'static str,
    /// How many managed clusters it needs besides the hub.
    pub clusters: usize,
    /// What happens.
    pub run: fn(Fleet) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// The scenario as two tests, one for each kind of cluster.
pub fn trials(scenario: &Scenario) -> [Trial; 2] {
    let (clusters, run) = (scenario.clusters, scenario.run);
    let on = move |kind| async move {
        let options = fleet::Options {
            kind,
            clusters,
            port_base: None,
            data: None,
            recorder: Some(rights::recorder()),
        };
        let fleet = Fleet::start_with(options).await?;
        run(fleet).await
    };
    [
        harness::plain(scenario.name, "embedded", move || on(Kind::Embedded)),
        harness::real(scenario.name, move || on(Kind::Real)),
    ]
}

/// Holds how long something took against the time after which it can only have been a poll or a resync. Promises of a
/// second are measured in `bench/`: on a busy machine a second proves nothing.
pub fn at_once(what: &str, took: Duration) -> anyhow::Result<()> {
    println!("{what}: {took:?}");
    anyhow::ensure!(
        took < Duration::from_secs(20),
        "{what} took {took:?}: nobody was watching"
    );
    Ok(())
}
