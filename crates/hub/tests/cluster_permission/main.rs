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
mod safety;
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
            "what_the_hub_refuses_is_revoked_as_far_as_it_was_taken_away",
            safety::reduced,
        ),
        harness::real("what_cannot_even_be_reduced_goes", safety::not_even_reduced),
        harness::real("works_are_as_small_as_admission_wants_them", safety::small_works),
        harness::real(
            "a_permission_that_is_made_again_leaves_no_old_work",
            safety::made_again,
        ),
        harness::real(
            "a_kind_that_cannot_be_read_stops_nothing_else",
            safety::cannot_be_read,
        ),
    ]);
}
