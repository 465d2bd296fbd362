//! ClusterPermission on a real control plane.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod api;
mod lifecycle;
mod support;

use writ_testenv::harness;

fn main() {
    harness::run(vec![
        harness::real("the_api_takes_what_upstream_takes", api::accepts),
        harness::real(
            "a_permission_follows_everything_it_names",
            lifecycle::follows_everything,
        ),
        harness::real(
            "a_restart_in_the_middle_and_one_that_writes_nothing",
            lifecycle::scale,
        ),
        harness::real(
            "an_admin_of_the_namespace_is_refused",
            lifecycle::admins_of_the_namespace_are_refused,
        ),
    ]);
}
