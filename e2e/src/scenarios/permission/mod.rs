//! ClusterPermission, from the hub's write to what the managed cluster's authorizer says.

use futures::FutureExt;

use crate::Scenario;

mod account;
mod conflict;
mod edited;
mod executor;
mod grant;
mod handover;
mod large;
mod migration;
mod neighbours;
mod overlap;
mod own;
mod revoked;
mod selector;
mod strangers;
mod support;
mod truth;
mod unsaid;
mod writers;

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "permission/what_is_granted_is_allowed_and_what_is_revoked_is_not",
            clusters: 1,
            run: |fleet| grant::grant_and_revoke(fleet).boxed(),
        },
        Scenario {
            name: "permission/what_a_former_permission_of_the_name_granted_goes",
            clusters: 1,
            run: |fleet| grant::made_again(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_binding_gets_another_role_and_drift_is_repaired",
            clusters: 1,
            run: |fleet| grant::change_and_drift(fleet).boxed(),
        },
        Scenario {
            name: "permission/selected_namespaces_are_those_of_the_managed_cluster",
            clusters: 1,
            run: |fleet| selector::by_agent(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_managed_service_account_reaches_its_cluster_as_far_as_it_is_granted",
            clusters: 1,
            run: |fleet| account::primary_use_case(fleet).boxed(),
        },
        Scenario {
            name: "permission/what_is_not_ours_is_not_overwritten",
            clusters: 1,
            run: |fleet| conflict::left_alone(fleet).boxed(),
        },
        Scenario {
            name: "permission/the_agent_selects_also_while_the_hub_is_away",
            clusters: 1,
            run: |fleet| selector::without_a_hub(fleet).boxed(),
        },
        Scenario {
            name: "permission/with_namespace_selector_hub_the_namespaces_of_the_hub_are_selected",
            clusters: 1,
            run: |fleet| selector::by_hub(fleet).boxed(),
        },
        Scenario {
            name: "permission/what_the_hub_would_not_hear_it_is_told_later",
            clusters: 1,
            run: |fleet| unsaid::later(fleet).boxed(),
        },
        Scenario {
            name: "permission/validate_looks_behind_selectors",
            clusters: 1,
            run: |fleet| selector::validated(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_role_that_leaves_goes_also_where_it_is_looked_for",
            clusters: 1,
            run: |fleet| revoked::validated_role(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_binding_without_its_owner_goes_with_its_entry",
            clusters: 1,
            run: |fleet| revoked::stripped(fleet).boxed(),
        },
        Scenario {
            name: "permission/the_hub_may_write_works_by_exactly_the_rule_of_the_design",
            clusters: 1,
            run: |fleet| executor::exactly_the_rule(fleet).boxed(),
        },
        Scenario {
            name: "permission/upstreams_controller_and_ours_change_places_without_a_gap",
            clusters: 1,
            run: |fleet| migration::no_gap(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_namespace_is_named_and_selected",
            clusters: 1,
            run: |fleet| overlap::overlap(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_selected_binding_is_named_with_another_role",
            clusters: 1,
            run: |fleet| overlap::another_role(fleet).boxed(),
        },
        Scenario {
            name: "permission/an_object_that_two_permissions_name_is_the_older_ones",
            clusters: 1,
            run: |fleet| neighbours::older_first(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_selector_is_edited_without_a_gap",
            clusters: 1,
            run: |fleet| edited::no_gap(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_revocation_that_is_held_up_revokes_and_is_told",
            clusters: 1,
            run: |fleet| edited::held_up(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_finalizer_on_what_a_work_delivers_keeps_no_access",
            clusters: 1,
            run: |fleet| edited::held_up_by_name(fleet).boxed(),
        },
        Scenario {
            name: "permission/hub_and_agent_change_places_as_selectors_without_a_gap",
            clusters: 2,
            run: |fleet| overlap::change_hands(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_strangers_role_is_left_alone_and_not_bound",
            clusters: 1,
            run: |fleet| strangers::roles(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_strangers_role_is_not_bound_in_another_form",
            clusters: 1,
            run: |fleet| strangers::roles_in_other_forms(fleet).boxed(),
        },
        Scenario {
            name: "permission/an_owner_that_cannot_be_keeps_nothing",
            clusters: 1,
            run: |fleet| strangers::forged_owner(fleet).boxed(),
        },
        Scenario {
            name: "permission/an_entry_whose_revocation_is_held_up_is_told",
            clusters: 1,
            run: |fleet| strangers::held_entry(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_binding_that_is_held_back_stops_granting",
            clusters: 1,
            run: |fleet| strangers::held_back(fleet).boxed(),
        },
        Scenario {
            name: "permission/an_agent_that_denies_works_without_executor_gets_one",
            clusters: 1,
            run: |fleet| executor::named(fleet).boxed(),
        },
        Scenario {
            name: "permission/nobody_may_write_one_by_default",
            clusters: 1,
            run: |fleet| writers::nobody(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_permission_of_600_kib_is_split",
            clusters: 1,
            run: |fleet| large::split(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_role_of_the_cluster_is_bound_though_one_of_its_name_is_made_elsewhere",
            clusters: 1,
            run: |fleet| own::elsewhere(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_role_that_cannot_be_made_is_not_bound_under_its_name",
            clusters: 1,
            run: |fleet| own::refused(fleet).boxed(),
        },
        Scenario {
            name: "permission/what_is_named_then_selected_then_renamed_has_no_gap",
            clusters: 1,
            run: |fleet| handover::no_gap(fleet).boxed(),
        },
        Scenario {
            name: "permission/nothing_is_called_applied_while_its_work_cannot_be_written",
            clusters: 1,
            run: |fleet| truth::work_not_written(fleet).boxed(),
        },
        Scenario {
            name: "permission/nothing_is_called_revoked_while_a_binding_cannot_be_narrowed",
            clusters: 1,
            run: |fleet| truth::not_narrowed(fleet).boxed(),
        },
        Scenario {
            name: "permission/a_permission_that_a_finalizer_keeps_says_what_is_left",
            clusters: 1,
            run: |fleet| truth::kept(fleet).boxed(),
        },
        Scenario {
            name: "permission/the_first_of_several_works_comes_back_with_what_it_had",
            clusters: 1,
            run: |fleet| large::first_deleted(fleet).boxed(),
        },
    ]
}
