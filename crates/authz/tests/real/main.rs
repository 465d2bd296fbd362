//! The engine against the truth: the same questions to the index and to a real kube-apiserver, with no difference.
//!
//! `WRIT_AUTHZ_SEED` picks other random policies than the default; the seed is printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod actor;
mod cluster;
mod decisions;
mod escalation;
#[path = "../../src/tests/generate.rs"]
mod generate;
#[path = "../../src/tests/model.rs"]
mod model;

use writ_testenv::harness;

fn main() {
    harness::run(vec![
        harness::real("decisions_are_those_of_the_api_server", decisions::run),
        harness::real("escalations_are_those_of_the_api_server", escalation::run),
    ]);
}
