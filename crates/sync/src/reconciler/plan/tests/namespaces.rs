//! Implied namespaces, and the guard against a commit that drops all of them.

use super::support::*;
use crate::reconciler::{
    error::{Cause, Code},
    observed::NamespaceState,
    plan::{dropped_namespaces, implied_namespaces, namespaces_to_read},
};

const MAP: &str = "ConfigMap web/a";
const NONE: [&str; 0] = [];

fn to_read(case: &Case) -> Vec<String> {
    namespaces_to_read(&case.desired, &case.observed)
        .into_iter()
        .collect()
}

fn implied(case: &Case) -> Vec<String> {
    implied_namespaces(&case.desired, &case.observed)
        .into_iter()
        .collect()
}

fn refused(case: &Case) -> bool {
    let plan = case.plan();
    let refused = plan.refusal.as_ref().map(|problem| problem.code) == Some(Code::EmptySource);
    assert_eq!(plan.refusal.is_some(), refused);
    assert!(!refused || plan.actions.is_empty());
    refused
}

#[test]
fn used_namespace_is_read_once() {
    let case = case().declares(&[MAP, "Role web/r", "ClusterRole c"]);
    assert_eq!(to_read(&case), ["web"]);
    assert_eq!(to_read(&case.namespace("web", OTHERS)), NONE);
}

#[test]
fn declared_namespace_is_not_read() {
    let case = case().declares(&[MAP, "Namespace web"]);
    assert_eq!(to_read(&case), NONE);
    assert_eq!(implied(&case), NONE);
}

#[test]
fn namespace_is_implied_if_it_is_missing_or_ours() {
    for (state, expected) in [
        (NamespaceState::Missing, true),
        (OURS, true),
        (DETACHED, true),
        (OTHERS, false),
        (NamespaceState::Unknown, false),
    ] {
        let case = case().declares(&[MAP]).namespace("web", state);
        assert_eq!(!implied(&case).is_empty(), expected, "{state:?}");
    }
}

#[test]
fn no_namespace_is_implied_with_the_explicit_strategy() {
    let case = case().declares(&[MAP]).without_implied_namespaces();
    assert_eq!(to_read(&case), NONE);
    assert_eq!(implied(&case.namespace("web", NamespaceState::Missing)), NONE);
}

#[test]
fn implied_namespace_is_applied_before_its_objects_and_detached() {
    let mut case = case().declares(&[MAP]).namespace("web", NamespaceState::Missing);
    case.desired
        .imply_namespaces(&implied_namespaces(&case.desired, &case.observed));
    assert_eq!(case.apply(), [["Namespace web"], [MAP]]);
    let namespace = &case.desired.declared[&id("Namespace web")];
    let deletion = "/metadata/annotations/client.lifecycle.config.k8s.io~1deletion";
    assert_eq!(namespace.value.pointer(deletion).unwrap(), "detach");
    assert_eq!(implied(&case), NONE, "it is declared now");
}

#[test]
fn namespace_is_read_again_when_an_object_finds_it_missing() {
    let case = case().declares(&[MAP]).namespace("web", OTHERS);
    assert_eq!(to_read(&case), NONE);
    assert_eq!(to_read(&case.failed(MAP, Cause::NamespaceMissing)), ["web"]);
}

#[test]
fn namespace_is_read_again_when_an_object_in_it_is_retried() {
    let case = case()
        .declares(&[MAP])
        .namespace("web", OTHERS)
        .failed(MAP, Cause::Forbidden);
    assert_eq!(to_read(&case), NONE);
    assert_eq!(to_read(&case.retries()), ["web"]);
}

#[test]
fn objects_are_retried_at_once_in_a_namespace_that_was_missing() {
    let elsewhere = "ConfigMap other/a";
    let mut case = case()
        .declares(&[MAP, "Role web/r", elsewhere])
        .failed(MAP, Cause::NamespaceMissing)
        .failed("Role web/r", Cause::Forbidden)
        .failed(elsewhere, Cause::NamespaceMissing)
        .namespace("web", NamespaceState::Missing);
    let implied = implied_namespaces(&case.desired, &case.observed);
    case.desired.imply_namespaces(&implied);
    case.observed.retry_in_namespaces(&implied);
    assert_eq!(case.apply(), [["Namespace web"], [MAP]]);
}

#[test]
fn namespaces_are_read_again_with_a_new_commit() {
    let mut case = case().declares(&[MAP]).namespace("web", OTHERS);
    case.observed.start_commit(&case.desired);
    assert_eq!(to_read(&case), ["web"]);
}

#[test]
fn commit_that_drops_every_namespace_is_refused() {
    let case = case()
        .declares(&["ClusterRole c"])
        .lists(&["Namespace one", "Namespace two"])
        .namespace("one", OURS)
        .namespace("two", OURS);
    assert!(refused(&case));
    assert_eq!(case.inventory(), ["Namespace one", "Namespace two"]);
    let message = case.plan().refusal.unwrap().message;
    assert!(message.contains("all 2 namespaces"), "{message}");
}

#[test]
fn commit_that_drops_namespaces_is_accepted_if_fewer_than_two_are_lost() {
    let lists = || case().lists(&["Namespace one", "Namespace two"]);
    let one = || lists().namespace("one", OURS);
    for (why, case, expected) in [
        (
            "one of them is gone",
            one().namespace("two", NamespaceState::Missing),
            false,
        ),
        (
            "one of them stays on the cluster",
            one().namespace("two", DETACHED),
            false,
        ),
        (
            "one of them cannot be read",
            one().namespace("two", NamespaceState::Unknown),
            true,
        ),
        ("one of them was not read", one(), true),
        (
            "one of them is given up",
            one().namespace("two", OURS).disables(&["Namespace two"]),
            false,
        ),
        (
            "another one is declared",
            one().namespace("two", OURS).declares(&["Namespace three"]),
            false,
        ),
        (
            "one of them is still declared",
            one().namespace("two", OURS).declares(&["Namespace two"]),
            false,
        ),
        (
            "a kind is not known",
            one().namespace("two", OURS).unresolved("Thing web/t", None),
            false,
        ),
        (
            "there was only one",
            super::support::case()
                .lists(&["Namespace one"])
                .namespace("one", OURS),
            false,
        ),
    ] {
        assert_eq!(refused(&case), expected, "{why}");
    }
}

#[test]
fn dropped_namespaces_are_read_only_if_all_of_several_are_dropped() {
    let lists = || case().lists(&["Namespace one", "Namespace two", MAP]);
    let dropped = |case: &Case| dropped_namespaces(&case.desired, &case.observed).len();
    assert_eq!(dropped(&lists()), 2);
    assert_eq!(dropped(&lists().declares(&["Namespace one"])), 0);
    assert_eq!(dropped(&lists().disables(&["Namespace one"])), 0);
    assert_eq!(dropped(&lists().unresolved("Thing web/t", None)), 0);
    assert_eq!(dropped(&case().lists(&["Namespace one"])), 0);
}
