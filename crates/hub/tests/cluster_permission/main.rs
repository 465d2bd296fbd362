//! ClusterPermission on a real control plane.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod api;
mod support;

use writ_testenv::harness;

fn main() {
    harness::run(vec![harness::real(
        "the_api_takes_what_upstream_takes",
        api::accepts,
    )]);
}
