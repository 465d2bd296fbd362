//! The manager and its reconcilers on a real control plane, with the rights that `deploy/sync` ships and no others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bindings;
mod deletion;
mod env;
mod https;
mod modes;
mod rights;
mod sources;

use writ_testenv::harness::{self, real};

fn main() {
    harness::run(vec![
        real("the_user_guide_works_as_written", bindings::user_guide),
        real(
            "from_no_roles_to_some_and_back_while_syncing",
            bindings::switch_and_back,
        ),
        real(
            "one_role_is_removed_and_duplicates_are_one",
            bindings::removal_and_duplicates,
        ),
        real(
            "a_missing_namespace_or_role_heals_when_it_appears",
            bindings::missing_things,
        ),
        real("a_tenant_cannot_change_its_binding", bindings::tampering),
        real("a_narrow_sync_cannot_give_itself_more", rights::escalation),
        real("role_bindings_alone_are_enough", rights::role_bindings_only),
        real("two_syncs_over_one_object", rights::conflicts),
        real("a_repo_sync_stays_in_its_namespace", rights::repo_sync),
        real("branches_come_and_go", sources::branches),
        real("bad_files_do_not_stop_good_ones", sources::files),
        real("layouts_and_what_is_not_built", sources::layouts),
        real("two_hundred_root_syncs", sources::many),
        real("https_with_a_token_and_a_ca", https::token_and_ca),
        real("an_editor_needs_bind", modes::require_bind),
        real("one_deployment_per_sync", modes::pods),
        real("objects_are_deleted_or_orphaned", deletion::policies),
        real(
            "a_role_is_removed_in_the_middle_of_a_deletion",
            deletion::role_removed,
        ),
    ]);
}
