//! Runs every scenario on both kinds of cluster.

use writ_e2e::{rights, scenarios, trials};
use writ_testenv::harness;

fn main() {
    let trials = scenarios::all().iter().flat_map(trials).collect();
    harness::run_then(trials, rights::check);
}
