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
        harness::real("api_accepts_every_permission_of_ocm", api::accepts),
        harness::real(
            "permission_follows_everything_it_refers_to",
            lifecycle::follows_everything,
        ),
        harness::real("restart_of_a_settled_hub_writes_nothing", lifecycle::scale),
        harness::real("refused_work_is_reduced", safety::reduced),
        harness::real("irreducible_work_is_deleted", safety::not_even_reduced),
        harness::real("works_fit_the_limit_of_admission", safety::small_works),
        harness::real("recreated_permission_leaves_no_former_work", safety::made_again),
        harness::real(
            "unreadable_kind_stops_only_what_refers_to_it",
            safety::cannot_be_read,
        ),
    ]);
}
