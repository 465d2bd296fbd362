//! What is applied and pruned, in which order, and what stays in the inventory.

use serde_json::json;

use super::support::*;
use crate::reconciler::{
    drift::Seen,
    error::{Cause, Code},
    observed::Outcome,
};

const MAP: &str = "ConfigMap web/a";
const OTHER: &str = "ConfigMap web/b";
const CRD: &str = "CustomResourceDefinition things.example.com";
const NOTHING: [[&str; 0]; 0] = [];

// What is applied.

#[test]
fn new_object_is_applied() {
    assert_eq!(case().declares(&[MAP]).apply(), [[MAP]]);
}

#[test]
fn nothing_is_applied_twice() {
    let case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    assert!(case.plan().actions.is_empty());
    assert_eq!(case.inventory(), [MAP]);
}

#[test]
fn object_of_the_inventory_is_applied_after_a_restart() {
    assert_eq!(case().declares(&[MAP]).lists(&[MAP]).apply(), [[MAP]]);
}

#[test]
fn object_that_a_watch_shows_as_declared_is_not_applied() {
    let case = case().declares(&[MAP]).lists(&[MAP]).sees_live(MAP, "5", None);
    assert_eq!(case.apply(), NOTHING);
}

#[test]
fn changed_object_is_applied() {
    let case = case().declares(&[MAP, OTHER]).lists(&[MAP, OTHER]);
    let case = case.applied(&[OTHER]).applied_before(&[MAP]);
    assert_eq!(case.apply(), [[MAP]]);
}

#[test]
fn deleted_object_is_applied_again() {
    let case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    assert_eq!(case.sees(Seen::Gone(id(MAP))).apply(), [[MAP]]);
}

#[test]
fn drift_is_corrected() {
    let case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    assert_eq!(case.sees_live(MAP, "2", Some("mallory")).apply(), [[MAP]]);
}

#[test]
fn event_from_before_the_last_write_is_not_drift() {
    let mut case = case().declares(&[MAP]).lists(&[MAP]);
    let hash = case.desired.declared[&id(MAP)].hash.clone();
    case.record(MAP, Outcome::Applied(applied("7", &hash)));
    assert_eq!(case.sees_live(MAP, "6", Some("mallory")).apply(), NOTHING);
}

#[test]
fn drift_of_an_object_with_ignored_mutations_is_left() {
    let ignore = json!({ "client.lifecycle.config.k8s.io/mutation": "ignore" });
    let case = case().declares_with(MAP, &ignore).lists(&[MAP]).applied(&[MAP]);
    let case = case.sees_live(MAP, "2", Some("mallory"));
    assert_eq!(case.apply(), NOTHING);
    assert_eq!(
        case.sees(Seen::Gone(id(MAP))).apply(),
        [[MAP]],
        "once it is deleted"
    );
}

/// An object that another writer has changed, and this reconciler corrected, this often.
fn fought_over(corrections: usize) -> Case {
    let mut case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    let hash = case.desired.declared[&id(MAP)].hash.clone();
    for n in 1..=corrections {
        case = case.sees_live(MAP, &format!("{n}0"), Some("mallory"));
        case.record(MAP, Outcome::Applied(applied(&format!("{n}1"), &hash)));
    }
    case
}

#[test]
fn drift_under_a_fight_is_held_back_until_the_retry() {
    let case = fought_over(5).sees_live(MAP, "900", Some("mallory"));
    assert_eq!(case.apply(), [[MAP]], "five changes are no fight");
    let case = fought_over(6).sees_live(MAP, "900", Some("mallory"));
    assert_eq!(case.apply(), NOTHING);
    assert_eq!(case.inventory(), [MAP]);
    assert_eq!(case.retries().apply(), [[MAP]]);
}

#[test]
fn failed_object_is_held_back_until_the_retry() {
    let case = case().declares(&[MAP, OTHER]).failed(MAP, Cause::Refused);
    assert_eq!(case.apply(), [[OTHER]]);
    assert_eq!(case.retries().apply(), [[MAP, OTHER]]);
}

#[test]
fn failed_object_is_applied_again_when_it_was_deleted() {
    let case = case().declares(&[MAP]).lists(&[MAP]).failed(MAP, Cause::Refused);
    assert_eq!(case.sees(Seen::Gone(id(MAP))).apply(), [[MAP]]);
}

#[test]
fn failed_object_is_applied_again_with_a_new_commit() {
    let mut case = case().declares(&[MAP]).failed(MAP, Cause::Refused);
    case.observed.start_commit(&case.desired);
    assert_eq!(case.apply(), [[MAP]]);
    assert!(
        case.observed.objects[&id(MAP)].failure.is_some(),
        "it is reported until then"
    );
}

#[test]
fn object_that_failed_and_is_seen_as_declared_is_neither_applied_nor_reported() {
    let case = case()
        .declares(&[MAP])
        .lists(&[MAP])
        .failed(MAP, Cause::Forbidden);
    let case = case.sees_live(MAP, "9", None).retries();
    assert_eq!(case.apply(), NOTHING);
    assert!(case.observed.objects[&id(MAP)].failure.is_none());
}

#[test]
fn object_without_a_watch_is_applied_again_when_it_is_rechecked() {
    use crate::reconciler::observed::WatchState;
    let case = case()
        .declares(&[MAP, OTHER, "Role web/a"])
        .lists(&[MAP, OTHER, "Role web/a"]);
    let case = case.applied(&[MAP, OTHER, "Role web/a"]);
    let mut case = case
        .watch(scope("ConfigMap", "web"), WatchState::Refused("no".into()))
        .watch(scope("Role", "web"), WatchState::Ready);
    case.observed.recheck_unwatched(&case.desired);
    assert_eq!(case.apply(), [[MAP, OTHER]]);
}

// In which order.

#[test]
fn objects_are_applied_in_the_order_of_their_ranks() {
    let case = case().declares(&[
        "ValidatingWebhookConfiguration w",
        "Deployment web/d",
        "Role web/r",
        MAP,
        "Namespace web",
    ]);
    assert_eq!(
        case.apply(),
        [
            vec!["Namespace web"],
            vec![MAP, "Role web/r"],
            vec!["Deployment web/d"],
            vec!["ValidatingWebhookConfiguration w"],
        ]
    );
}

#[test]
fn definitions_are_applied_alone_and_awaited() {
    let case = case()
        .declares(&[CRD, MAP, "Thing web/t"])
        .lists(&["Role web/stale"]);
    let actions = case.plan().actions;
    assert_eq!(case.apply(), [[CRD]]);
    assert_eq!(actions.definitions, [id(CRD)].into());
    assert!(actions.prune.is_empty());
    let case = case.applied(&[CRD]);
    assert_eq!(case.apply(), [vec![MAP], vec!["Thing web/t"]]);
    assert!(case.plan().actions.definitions.is_empty());
    assert_eq!(case.prune(), [["delete Role web/stale"]]);
}

#[test]
fn definition_that_drifted_is_corrected_with_the_others() {
    let case = case().declares(&[CRD, MAP]).lists(&[CRD]).applied(&[CRD]);
    let case = case.sees_live(CRD, "2", Some("mallory"));
    assert_eq!(case.apply(), [[CRD], [MAP]]);
    assert!(case.plan().actions.definitions.is_empty());
}

#[test]
fn changes_count_what_later_steps_apply_and_prune() {
    let case = case().declares(&[CRD, MAP]).lists(&["Role web/stale"]);
    assert_eq!(case.plan().changes, 3);
}

#[test]
fn definition_that_failed_does_not_stop_the_others() {
    let case = case().declares(&[CRD, MAP]).failed(CRD, Cause::Forbidden);
    assert_eq!(case.apply(), [[MAP]]);
}

#[test]
fn dependency_is_applied_in_an_earlier_wave() {
    let after = json!({ "config.kubernetes.io/depends-on": "/namespaces/web/ConfigMap/b" });
    let case = case().declares_with(MAP, &after).declares(&[OTHER]);
    assert_eq!(case.apply(), [[OTHER], [MAP]]);
    assert_eq!(case.applied(&[OTHER]).apply(), [[MAP]]);
}

#[test]
fn objects_whose_dependencies_form_a_cycle_are_refused() {
    let after = |name: &str| json!({ "config.kubernetes.io/depends-on": format!("/namespaces/web/ConfigMap/{name}") });
    let case = case()
        .declares_with(MAP, &after("b"))
        .declares_with(OTHER, &after("a"))
        .declares(&["Role web/r"]);
    let actions = case.plan().actions;
    assert_eq!(case.apply(), [["Role web/r"]]);
    let cyclic: Vec<_> = actions
        .cyclic
        .iter()
        .map(|(id, failure)| (id.clone(), failure.problem.code))
        .collect();
    assert_eq!(cyclic, [(id(MAP), Code::Resource), (id(OTHER), Code::Resource)]);
}

// What is pruned.

#[test]
fn object_that_is_no_longer_declared_is_deleted() {
    let case = case().declares(&[MAP]).lists(&[MAP, OTHER]).applied(&[MAP]);
    assert_eq!(case.prune(), [[format!("delete {OTHER}")]]);
    assert_eq!(case.inventory(), [MAP, OTHER], "until it is gone");
}

#[test]
fn pruned_object_leaves_the_inventory() {
    let case = case()
        .declares(&[MAP])
        .lists(&[MAP, OTHER])
        .applied(&[MAP])
        .pruned(OTHER);
    assert!(case.plan().actions.is_empty());
    assert_eq!(case.inventory(), [MAP]);
}

#[test]
fn disabled_object_is_given_up() {
    let case = case().lists(&[MAP]).disables(&[MAP]);
    assert_eq!(case.prune(), [[format!("give up {MAP}")]]);
    assert_eq!(case.pruned(MAP).inventory(), [""; 0]);
}

#[test]
fn disabled_object_that_was_never_managed_is_left_alone() {
    assert!(case().disables(&[MAP]).plan().actions.is_empty());
}

#[test]
fn objects_are_pruned_in_the_reverse_order_of_their_ranks() {
    let case = case().lists(&["Namespace web", MAP, "Deployment web/d", CRD]);
    assert_eq!(
        case.prune(),
        [
            ["delete Deployment web/d".to_owned()],
            [format!("delete {MAP}")],
            ["delete Namespace web".to_owned()],
            [format!("delete {CRD}")],
        ]
    );
}

#[test]
fn failed_prune_is_held_back_until_the_retry() {
    let case = case().lists(&[MAP]).failed(MAP, Cause::Forbidden);
    assert_eq!(case.prune(), NOTHING);
    assert_eq!(case.inventory(), [MAP]);
    assert_eq!(case.retries().prune(), [[format!("delete {MAP}")]]);
}

#[test]
fn object_that_is_declared_again_after_it_was_pruned_is_applied() {
    let mut case = case().lists(&[MAP]).pruned(MAP);
    case = case.writes_inventory().declares(&[MAP]);
    assert_eq!(case.apply(), [[MAP]]);
    case = case.writes_inventory().applied(&[MAP]);
    case.desired.declared.clear();
    assert_eq!(case.prune(), [[format!("delete {MAP}")]], "and pruned again");
}

// While a part of the commit is unknown.

#[test]
fn nothing_is_pruned_while_a_file_is_bad() {
    let case = case().declares(&[OTHER]).lists(&[MAP]).bad_file();
    assert_eq!(case.prune(), NOTHING);
    assert_eq!(case.apply(), [[OTHER]], "others are applied");
    assert_eq!(case.inventory(), [MAP, OTHER]);
}

#[test]
fn nothing_is_pruned_while_a_kind_is_not_served() {
    let case = case().lists(&[MAP]).unresolved("Thing web/t", None);
    assert_eq!(case.prune(), NOTHING);
    assert_eq!(case.inventory(), [MAP]);
}

#[test]
fn nothing_is_pruned_while_a_kind_is_unknown() {
    let case = case().lists(&[MAP]).unresolved("Thing web/t", Some("away"));
    assert_eq!(case.prune(), NOTHING);
}

// What stays in the inventory.

#[test]
fn new_object_is_listed_before_it_is_applied() {
    assert_eq!(case().declares(&[MAP]).inventory(), [MAP]);
}

#[test]
fn objects_that_wait_for_a_definition_are_listed_before_it_is_applied() {
    assert_eq!(case().declares(&[CRD, MAP]).inventory(), [MAP, CRD]);
}

#[test]
fn new_object_that_was_refused_leaves_the_inventory() {
    for cause in [
        Cause::Refused,
        Cause::Forbidden,
        Cause::KindNotServed,
        Cause::NamespaceMissing,
        Cause::ManagementConflict,
    ] {
        let case = case().declares(&[MAP]).writes_inventory().failed(MAP, cause);
        assert_eq!(case.inventory(), [""; 0], "{cause:?}");
    }
}

#[test]
fn new_object_whose_write_may_have_taken_effect_stays_listed() {
    for cause in [Cause::Unanswered, Cause::ServerError, Cause::Unauthorized] {
        let case = case().declares(&[MAP]).writes_inventory().failed(MAP, cause);
        assert_eq!(case.inventory(), [MAP], "{cause:?}");
        // The object may exist, so a later refusal does not remove it.
        let case = case.retries().writes_inventory().failed(MAP, Cause::Refused);
        assert_eq!(case.inventory(), [MAP], "{cause:?}, then a refusal");
    }
}

#[test]
fn known_object_that_was_refused_stays_listed() {
    for cause in [
        Cause::Refused,
        Cause::Forbidden,
        Cause::NamespaceMissing,
        Cause::Unanswered,
    ] {
        let case = case().declares(&[MAP]).lists(&[MAP]).failed(MAP, cause);
        assert_eq!(case.inventory(), [MAP], "{cause:?}");
    }
}

#[test]
fn object_of_another_sync_leaves_the_inventory() {
    let case = case()
        .declares(&[MAP])
        .lists(&[MAP])
        .failed(MAP, Cause::ManagementConflict);
    assert_eq!(case.inventory(), [""; 0]);
    assert_eq!(case.retries().inventory(), [MAP], "until it is tried again");
}

#[test]
fn drifted_object_stays_listed() {
    let case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    assert_eq!(case.sees_live(MAP, "2", None).inventory(), [MAP]);
}

#[test]
fn applied_object_is_listed_again_after_another_writer_removed_it() {
    let mut case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    case.observed.inventory.objects = Some([].into());
    assert_eq!(case.inventory(), [MAP]);
    // It exists, so a refusal does not remove it.
    let case = case
        .writes_inventory()
        .sees(Seen::Gone(id(MAP)))
        .failed(MAP, Cause::Refused);
    assert_eq!(case.inventory(), [MAP]);
}

#[test]
fn object_is_known_ours_only_if_it_was_listed_before() {
    let known = case().declares(&[MAP]).lists(&[MAP]).writes_inventory();
    assert!(known.observed.is_known_ours(&id(MAP)));
    let new = case().declares(&[MAP]).writes_inventory();
    assert!(!new.observed.is_known_ours(&id(MAP)));
    assert!(new.applied(&[MAP]).observed.is_known_ours(&id(MAP)));
}
