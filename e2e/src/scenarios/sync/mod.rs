//! RootSync and RepoSync: from a commit to what is in the cluster, and what stays out of reach.
//!
//! Each scenario has one cluster, on which `writ sync` runs with the account and the roles of `deploy/sync`.

mod bindings;
mod deletion;
mod drift;
mod https;
mod kinds;
mod migration;
mod modes;
mod namespaces;
mod rights;
mod sources;
mod support;
mod trust;

use futures::{FutureExt, future::BoxFuture};
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{Fleet, Scenario};

/// Runs a scenario on a thread of its own: a Git repository cannot go from one to another.
fn on_one_thread<F>(fleet: Fleet, scenario: fn(Fleet) -> F) -> BoxFuture<'static, anyhow::Result<()>>
where
    F: Future<Output = anyhow::Result<()>> + 'static,
{
    async move {
        let runtime = Handle::current();
        spawn_blocking(move || runtime.block_on(scenario(fleet))).await?
    }
    .boxed()
}

macro_rules! scenarios {
    ($($name:literal => $run:path,)*) => {
        vec![$(Scenario {
            name: concat!("sync/", $name),
            clusters: 0,
            run: |fleet| on_one_thread(fleet, $run),
        }),*]
    };
}

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    scenarios! {
        "the_user_guide_works_as_written" => bindings::user_guide,
        "from_no_roles_to_some_and_back_while_syncing" => bindings::switch_and_back,
        "one_role_is_removed_and_duplicates_are_one" => bindings::removal_and_duplicates,
        "a_missing_namespace_or_role_heals_when_it_appears" => bindings::missing_things,
        "a_tenant_cannot_change_its_binding" => bindings::tampering,
        "a_narrow_sync_cannot_give_itself_more" => rights::escalation,
        "role_bindings_alone_are_enough" => rights::role_bindings_only,
        "two_syncs_over_one_object" => rights::conflicts,
        "a_repo_sync_stays_in_its_namespace" => rights::repo_sync,
        "branches_come_and_go" => sources::branches,
        "bad_files_do_not_stop_good_ones" => sources::files,
        "layouts_and_what_is_not_built" => sources::layouts,
        "two_hundred_root_syncs" => sources::many,
        "https_with_a_token_and_a_ca" => https::token_and_ca,
        "an_editor_needs_bind" => modes::require_bind,
        "what_has_no_effect_is_named" => modes::ignored,
        "one_deployment_per_sync" => modes::pods,
        "a_repository_is_away_for_an_hour" => drift::away_for_an_hour,
        "a_silent_server_stops_no_drift_correction" => drift::silent_server,
        "neither_a_commit_nor_a_restart_writes_what_is_as_declared" => drift::nothing_to_do,
        "who_fights_over_an_object_is_named" => drift::fight,
        "nothing_of_config_syncs_own_manager_stays" => migration::from_config_sync,
        "a_restart_reports_nothing_new" => drift::restart,
        "objects_that_are_left_alone" => drift::left_alone,
        "another_syncs_name_on_an_object_is_not_believed" => trust::forged,
        "rights_that_are_gone_leave_no_sync_stuck" => trust::rights_gone,
        "an_inventory_is_restored_at_once" => trust::inventory,
        "labels_alone_make_nothing_a_syncs" => trust::labels,
        "a_refused_secret_is_not_quoted" => trust::secrets,
        "a_kind_that_is_gone_stops_nothing" => kinds::gone,
        "a_used_namespace_is_made_whenever_it_is_missing" => namespaces::missing,
        "a_new_namespace_strategy_is_followed_at_once" => namespaces::strategy,
        "what_is_declared_is_never_deleted" => kinds::late,
        "objects_are_deleted_or_orphaned" => deletion::policies,
        "a_role_is_removed_in_the_middle_of_a_deletion" => deletion::role_removed,
        "whatever_fails_can_be_left_behind" => deletion::abandoned,
        "what_others_need_is_deleted_last" => deletion::order,
    }
}
