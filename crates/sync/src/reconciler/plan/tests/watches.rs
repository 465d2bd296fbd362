//! What is watched.

use std::collections::BTreeSet;

use super::support::*;
use crate::reconciler::{drift::Seen, observed::WatchState, plan::watch_scopes};

fn scopes(case: &Case) -> Vec<(String, String)> {
    let scopes = watch_scopes(&case.desired, &case.observed);
    scopes
        .into_iter()
        .map(|scope| (scope.kind, scope.namespace))
        .collect()
}

fn expected(scopes: &[(&str, &str)]) -> Vec<(String, String)> {
    scopes
        .iter()
        .map(|(kind, namespace)| ((*kind).into(), (*namespace).into()))
        .collect()
}

#[test]
fn kind_in_few_namespaces_is_watched_in_each() {
    let case = case().declares(&["ConfigMap a/x", "ConfigMap a/y", "ConfigMap b/x", "ClusterRole c"]);
    assert_eq!(
        scopes(&case),
        expected(&[("ConfigMap", "a"), ("ConfigMap", "b"), ("ClusterRole", "")])
    );
}

#[test]
fn kind_in_many_namespaces_is_watched_in_all_at_once() {
    let many = ["ConfigMap a/x", "ConfigMap b/x", "ConfigMap c/x", "ConfigMap d/x"];
    assert_eq!(scopes(&case().declares(&many)), expected(&[("ConfigMap", "")]));
}

#[test]
fn refused_watch_on_all_namespaces_becomes_one_per_namespace() {
    let many = ["ConfigMap a/x", "ConfigMap b/x", "ConfigMap c/x", "ConfigMap d/x"];
    let case = case()
        .declares(&many)
        .watch(scope("ConfigMap", ""), WatchState::Starting);
    let case = case.sees(Seen::Refused(scope("ConfigMap", ""), "no".into()));
    assert_eq!(
        scopes(&case),
        expected(&[
            ("ConfigMap", "a"),
            ("ConfigMap", "b"),
            ("ConfigMap", "c"),
            ("ConfigMap", "d")
        ])
    );
    assert!(case.observed.watches.is_empty());
}

#[test]
fn refused_watch_on_a_kind_without_namespaces_stays_refused() {
    let case = case().declares(&["ClusterRole c"]);
    let case = case.watch(scope("ClusterRole", ""), WatchState::Starting);
    let case = case.sees(Seen::Refused(scope("ClusterRole", ""), "no".into()));
    let state = &case.observed.watches[&scope("ClusterRole", "")];
    assert_eq!(*state, WatchState::Refused("no".into()));
    assert!(case.retries().observed.watches.is_empty(), "until the retry");
}

#[test]
fn watch_is_ready_failing_and_ready_again() {
    let map = || scope("ConfigMap", "a");
    let mut case = case()
        .declares(&["ConfigMap a/x"])
        .watch(map(), WatchState::Starting);
    for (seen, state) in [
        (Seen::Ready(map()), WatchState::Ready),
        (
            Seen::Failing(map(), "away".into()),
            WatchState::Failing("away".into()),
        ),
        (Seen::Ready(map()), WatchState::Ready),
    ] {
        case = case.sees(seen);
        assert_eq!(case.observed.watches[&map()], state);
    }
}

#[test]
fn event_of_a_watch_that_has_ended_is_ignored() {
    let case = case().declares(&["ConfigMap a/x"]);
    let case = case.sees(Seen::Failing(scope("ConfigMap", "b"), "away".into()));
    assert_eq!(case.observed.watches.keys().collect::<BTreeSet<_>>(), [].into());
}
