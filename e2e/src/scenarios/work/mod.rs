//! Works are delivered, kept true, reported and removed; nobody uses an executor that is not theirs.

use futures::FutureExt;

use crate::Scenario;

mod admission;
mod adversity;
mod attacks;
mod count;
mod created;
mod delivery;
mod endings;
mod executor;
mod fields;
mod healing;
mod held;
mod link;
mod narrowed;
mod outage;
mod promises;
mod random;
mod records;
mod replica_set;
mod strategies;
pub mod support;

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "work/objects_are_delivered_pruned_and_removed",
            clusters: 1,
            run: |fleet| delivery::life(fleet).boxed(),
        },
        Scenario {
            name: "work/drift_is_repaired_at_once",
            clusters: 1,
            run: |fleet| delivery::drift(fleet).boxed(),
        },
        Scenario {
            name: "work/what_was_missing_is_delivered_when_it_appears",
            clusters: 1,
            run: |fleet| delivery::appears(fleet).boxed(),
        },
        Scenario {
            name: "work/what_is_not_understood_says_so_and_holds_up_nobody",
            clusters: 1,
            run: |fleet| delivery::not_understood(fleet).boxed(),
        },
        Scenario {
            name: "work/an_executor_is_granted_and_revoked_at_once",
            clusters: 1,
            run: |fleet| executor::grants(fleet).boxed(),
        },
        Scenario {
            name: "work/no_work_grants_more_than_its_executor_holds",
            clusters: 1,
            run: |fleet| executor::escalation(fleet).boxed(),
        },
        Scenario {
            name: "work/what_results_from_a_merge_is_what_counts",
            clusters: 1,
            run: |fleet| attacks::merged(fleet).boxed(),
        },
        Scenario {
            name: "work/a_binding_waits_for_its_role",
            clusters: 1,
            run: |fleet| attacks::dangling(fleet).boxed(),
        },
        Scenario {
            name: "work/nothing_is_deleted_without_that_right",
            clusters: 1,
            run: |fleet| attacks::replaced(fleet).boxed(),
        },
        Scenario {
            name: "work/no_name_leads_to_another_object",
            clusters: 1,
            run: |fleet| attacks::redirected(fleet).boxed(),
        },
        Scenario {
            name: "work/what_is_created_is_owned_like_what_is_applied",
            clusters: 1,
            run: |fleet| created::created(fleet).boxed(),
        },
        Scenario {
            name: "work/a_record_leads_to_no_other_object",
            clusters: 1,
            run: |fleet| records::misled(fleet).boxed(),
        },
        Scenario {
            name: "work/what_an_executor_may_hold_comes_back",
            clusters: 1,
            run: |fleet| attacks::made_again(fleet).boxed(),
        },
        Scenario {
            name: "work/a_refusal_heals_when_its_cause_is_gone",
            clusters: 1,
            run: |fleet| healing::late(fleet).boxed(),
        },
        Scenario {
            name: "work/a_gate_that_cannot_ask_says_so",
            clusters: 1,
            run: |fleet| healing::cannot_ask(fleet).boxed(),
        },
        Scenario {
            name: "work/what_is_refused_is_still_told",
            clusters: 1,
            run: |fleet| healing::told(fleet).boxed(),
        },
        Scenario {
            name: "work/the_agents_own_rights_and_finalizers_are_waited_for",
            clusters: 1,
            run: |fleet| healing::waited_for(fleet).boxed(),
        },
        Scenario {
            name: "work/drift_is_repaired_where_the_agent_may_deliver_in_some_namespaces",
            clusters: 1,
            run: |fleet| narrowed::to_namespaces(fleet).boxed(),
        },
        Scenario {
            name: "work/what_the_agent_may_not_watch_is_told_and_looked_at",
            clusters: 1,
            run: |fleet| narrowed::to_less_than_a_watch(fleet).boxed(),
        },
        Scenario {
            name: "work/what_is_the_agents_own_is_nobody_elses",
            clusters: 1,
            run: |fleet| executor::protected(fleet).boxed(),
        },
        Scenario {
            name: "work/switches_of_the_gate",
            clusters: 1,
            run: |fleet| executor::switches(fleet).boxed(),
        },
        Scenario {
            name: "work/other_authorizers_are_asked_exactly",
            clusters: 1,
            run: |fleet| executor::other_authorizers(fleet).boxed(),
        },
        Scenario {
            name: "work/four_strategies_and_ignored_fields",
            clusters: 1,
            run: |fleet| strategies::strategies(fleet).boxed(),
        },
        Scenario {
            name: "work/fields_that_are_not_ignored_are_kept_true",
            clusters: 1,
            run: |fleet| fields::ignored(fleet).boxed(),
        },
        Scenario {
            name: "work/what_cannot_be_applied_is_delivered_all_the_same",
            clusters: 1,
            run: |fleet| fields::not_applicable(fleet).boxed(),
        },
        Scenario {
            name: "work/what_cannot_be_made_anew_is_not_deleted",
            clusters: 1,
            run: |fleet| strategies::made_anew(fleet).boxed(),
        },
        Scenario {
            name: "work/objects_are_shared_and_orphaned",
            clusters: 1,
            run: |fleet| strategies::ownership(fleet).boxed(),
        },
        Scenario {
            name: "work/what_a_deleted_work_says_of_its_objects_counts",
            clusters: 1,
            run: |fleet| endings::left_behind(fleet).boxed(),
        },
        Scenario {
            name: "work/a_complete_work_does_not_say_that_it_wrote_more",
            clusters: 1,
            run: |fleet| endings::complete(fleet).boxed(),
        },
        Scenario {
            name: "work/feedback_arrives_at_once",
            clusters: 1,
            run: |fleet| strategies::feedback(fleet).boxed(),
        },
        Scenario {
            name: "work/definitions_come_with_their_objects_and_strays_are_evicted",
            clusters: 1,
            run: |fleet| strategies::definitions_and_eviction(fleet).boxed(),
        },
        Scenario {
            name: "work/admission_asks_for_execute_as",
            clusters: 0,
            run: |fleet| admission::execute_as(fleet).boxed(),
        },
        Scenario {
            name: "work/admission_by_bindings_only_lets_the_hub_itself_pass",
            clusters: 0,
            run: |fleet| admission::by_binding_only(fleet).boxed(),
        },
        Scenario {
            name: "work/admission_that_is_down_refuses_specs_and_nothing_else",
            clusters: 1,
            run: |fleet| admission::down(fleet).boxed(),
        },
        Scenario {
            name: "work/a_hub_that_is_away_stops_nothing_and_nothing_is_lost",
            clusters: 1,
            run: |fleet| outage::hub_away(fleet).boxed(),
        },
        Scenario {
            name: "work/an_agent_that_starts_again_repeats_nothing",
            clusters: 1,
            run: |fleet| outage::restart(fleet).boxed(),
        },
        Scenario {
            name: "work/what_is_left_is_told_by_an_agent_that_starts_again",
            clusters: 1,
            run: |fleet| held::across_a_restart(fleet).boxed(),
        },
        Scenario {
            name: "work/edits_in_a_row_end_in_the_last",
            clusters: 1,
            run: |fleet| outage::edits_in_a_row(fleet).boxed(),
        },
        Scenario {
            name: "work/a_thousand_manifests_converge_with_five_reviews",
            clusters: 1,
            run: |fleet| outage::large(fleet).boxed(),
        },
        Scenario {
            name: "work/objects_of_one_rank_are_written_side_by_side",
            clusters: 1,
            run: |fleet| outage::side_by_side(fleet).boxed(),
        },
        Scenario {
            name: "work/fields_of_others_and_a_plain_status_stay",
            clusters: 1,
            run: |fleet| promises::fields_of_others(fleet).boxed(),
        },
        Scenario {
            name: "work/a_kind_that_never_comes_holds_up_nobody",
            clusters: 1,
            run: |fleet| promises::waiting(fleet).boxed(),
        },
        Scenario {
            name: "work/a_cluster_may_be_its_own_hub",
            clusters: 0,
            run: |fleet| promises::its_own_hub(fleet).boxed(),
        },
        Scenario {
            name: "work/an_unavailable_group_holds_up_nobody",
            clusters: 1,
            run: |fleet| adversity::unavailable_group(fleet).boxed(),
        },
        Scenario {
            name: "work/an_agent_that_ends_in_the_middle_leaves_nothing_behind",
            clusters: 1,
            run: |fleet| adversity::ends_in_the_middle(fleet).boxed(),
        },
        Scenario {
            name: "work/what_cannot_be_watched_is_looked_at",
            clusters: 1,
            run: |fleet| adversity::unwatchable(fleet).boxed(),
        },
        Scenario {
            name: "work/an_agent_with_another_id_ends_what_was_begun",
            clusters: 1,
            run: |fleet| adversity::renamed(fleet).boxed(),
        },
        Scenario {
            name: "work/what_a_refused_revision_says_takes_nothing_away",
            clusters: 1,
            run: |fleet| endings::refused_takes_nothing(fleet).boxed(),
        },
        Scenario {
            name: "work/what_another_work_created_stays",
            clusters: 1,
            run: |fleet| strategies::created_by_another(fleet).boxed(),
        },
        Scenario {
            name: "work/a_complete_work_ends_after_its_time",
            clusters: 1,
            run: |fleet| promises::ends_by_itself(fleet).boxed(),
        },
        Scenario {
            name: "work/random_edits_of_rbac_leave_no_stale_answer",
            clusters: 1,
            run: |fleet| random::edits(fleet).boxed(),
        },
        Scenario {
            name: "work/a_replica_set_rolls_out_step_by_step",
            clusters: 0,
            run: |fleet| replica_set::rollout(fleet).boxed(),
        },
        Scenario {
            name: "work/a_cluster_that_cannot_be_written_stops_no_other",
            clusters: 0,
            run: |fleet| replica_set::one_bad_cluster(fleet).boxed(),
        },
        Scenario {
            name: "work/a_replica_set_replaces_no_work_of_others",
            clusters: 0,
            run: |fleet| replica_set::a_work_of_others(fleet).boxed(),
        },
    ]
}
