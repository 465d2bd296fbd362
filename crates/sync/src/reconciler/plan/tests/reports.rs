//! What is reported, and when a retry is needed.

use tokio::time::Instant;

use super::support::*;
use crate::reconciler::{
    error::{Cause, Code},
    observed::{Outcome, WatchState},
    plan::{needs_retry, problems},
};

const MAP: &str = "ConfigMap web/a";

/// The codes of the reported problems, and whether a retry is needed.
fn report(case: &Case) -> (Vec<Code>, bool) {
    let mut codes: Vec<Code> = problems(&case.desired, &case.observed, Instant::now())
        .iter()
        .map(|problem| problem.code)
        .collect();
    codes.sort_unstable();
    (codes, needs_retry(&case.desired, &case.observed, Instant::now()))
}

#[test]
fn problems_and_retries_follow_from_what_is_observed() {
    let map = || case().declares(&[MAP]).lists(&[MAP]);
    let watched = |state| map().applied(&[MAP]).watch(scope("ConfigMap", "web"), state);
    for (why, case, codes, retry) in [
        ("nothing is declared", case(), vec![], false),
        ("all is applied", map().applied(&[MAP]), vec![], false),
        ("an object is not applied yet", map(), vec![], false),
        (
            "another sync has the object",
            map().failed(MAP, Cause::ManagementConflict),
            vec![Code::ManagementConflict],
            true,
        ),
        (
            "a right is missing",
            map().failed(MAP, Cause::Forbidden),
            vec![Code::InsufficientPermission],
            true,
        ),
        (
            "a prune failed",
            case().lists(&[MAP]).failed(MAP, Cause::Unanswered),
            vec![Code::ApiServer],
            true,
        ),
        (
            "a kind is not served",
            case().unresolved("Thing web/t", None),
            vec![Code::UnknownKind],
            true,
        ),
        (
            "the API server does not answer for a kind",
            case().unresolved("Thing web/t", Some("away")),
            vec![Code::ApiServer],
            true,
        ),
        ("a watch starts", watched(WatchState::Starting), vec![], false),
        ("a watch works", watched(WatchState::Ready), vec![], false),
        (
            "a watch is refused",
            watched(WatchState::Refused("no".into())),
            vec![Code::InsufficientPermission],
            true,
        ),
        // It goes on by itself.
        (
            "a watch fails",
            watched(WatchState::Failing("no".into())),
            vec![Code::ApiServer],
            false,
        ),
    ] {
        assert_eq!(report(&case), (codes, retry), "{why}");
    }
}

#[test]
fn fight_is_reported_with_the_other_writer_and_needs_retries() {
    let mut case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    let hash = case.desired.declared[&id(MAP)].hash.clone();
    for n in 1..=6 {
        case = case.sees_live(MAP, &format!("{n}0"), Some("mallory"));
        case.record(MAP, Outcome::Applied(applied(&format!("{n}1"), &hash)));
    }
    assert_eq!(report(&case), (vec![Code::ResourceFight], true));
    let problem = &problems(&case.desired, &case.observed, Instant::now())[0];
    assert!(problem.message.contains("\"mallory\"") && problem.message.contains("ConfigMap web/a"));
}

#[test]
fn correction_that_changed_nothing_is_not_part_of_a_fight() {
    let mut case = case().declares(&[MAP]).lists(&[MAP]).applied(&[MAP]);
    let hash = case.desired.declared[&id(MAP)].hash.clone();
    for n in 1..=10 {
        case = case.sees_live(MAP, &format!("{n}0"), Some("defaulter"));
        case.record(MAP, Outcome::Applied(applied(&format!("{n}0"), &hash)));
    }
    assert_eq!(report(&case), (vec![], false));
}

#[test]
fn failure_of_an_object_that_is_no_longer_declared_is_forgotten_with_the_new_commit() {
    let mut case = case().declares(&[MAP]).failed(MAP, Cause::Refused);
    case.desired.declared.clear();
    case.observed.start_commit(&case.desired);
    assert_eq!(report(&case), (vec![], false));
}
