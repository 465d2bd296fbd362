//! Tables for the escalation check. The same cases, and many more, are put to a real API server in `tests/real.rs`.

use super::*;
use crate::covers::uncovered;
use crate::{Budget, Shortfall, compact, covers, describe};

/// All that is missing, as atoms.
pub(super) fn missing(owner: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let shortfall = uncovered(owner, wanted, usize::MAX, &mut Budget::default());
    assert_eq!(shortfall.count, shortfall.first.len());
    assert!(!shortfall.cut_short);
    shortfall.first
}

#[test]
fn what_an_owner_covers() {
    let table: &[(&[PolicyRule], PolicyRule, bool)] = &[
        (&[rule("get - pods")], rule("get - pods"), true),
        (&[rule("get,list - pods,nodes")], rule("list - nodes"), true),
        (&[rule("get - pods")], rule("list - pods"), false),
        (&[rule("get - pods")], rule("get apps pods"), false),
        (&[], rule("get - pods"), false),
        // Parts of several rules cover a rule together, atom by atom.
        (
            &[rule("get - pods"), rule("list - pods")],
            rule("get,list - pods"),
            true,
        ),
        (
            &[rule("get - pods"), rule("list - nodes")],
            rule("get,list - pods,nodes"),
            false,
        ),
        // Wildcards.
        (&[rule("* - pods")], rule("get,whatever - pods"), true),
        (&[rule("* - pods")], rule("* - pods"), true),
        (&[rule("get - pods")], rule("* - pods"), false),
        (&[rule("get * pods")], rule("get -,apps pods"), true),
        (&[rule("get - pods")], rule("get * pods"), false),
        (&[rule("get - *")], rule("get - pods,pods/log,*"), true),
        (&[rule("get - pods")], rule("get - *"), false),
        // Subresources.
        (&[rule("get - pods")], rule("get - pods/log"), false),
        (&[rule("get - pods/log")], rule("get - pods"), false),
        (&[rule("get - */log")], rule("get - pods/log"), true),
        (&[rule("get - */log")], rule("get - */log"), true),
        (&[rule("get - pods/log")], rule("get - */log"), false),
        (&[rule("get - */log")], rule("get - pods"), false),
        (&[rule("get - */log/x")], rule("get - pods/log/x"), true),
        // Names.
        (&[rule("get - pods")], rule("get - pods a"), true),
        (&[rule("get - pods a,b")], rule("get - pods b"), true),
        (
            &[rule("get - pods a"), rule("get - pods b")],
            rule("get - pods a,b"),
            true,
        ),
        (&[rule("get - pods a")], rule("get - pods a,b"), false),
        (&[rule("get - pods a")], rule("get - pods"), false),
        (&[rule("get - pods *")], rule("get - pods a"), false),
        // URLs.
        (&[urls("get /a/*")], urls("get /a/b,/a/*,/a/b/*"), true),
        (&[urls("get /a/*")], urls("get /a"), false),
        (&[urls("get /a")], urls("get /a*"), false),
        (&[urls("get *")], urls("get /a,*"), true),
        (&[urls("* /a")], urls("get,post /a"), true),
        (&[urls("get /a")], urls("post /a"), false),
        (&[rule("* * *")], urls("get /a"), false),
        (&[urls("* *")], rule("get - pods"), false),
    ];
    for (owner, wanted, covered) in table {
        let missing = covers(owner, std::slice::from_ref(wanted));
        assert_eq!(
            missing.is_empty(),
            *covered,
            "{owner:?} covers {wanted:?}: missing {missing:?}"
        );
    }
}

#[test]
fn what_is_missing_comes_as_atoms() {
    let owner = [rule("get - pods"), urls("get /a")];
    let wanted = [
        rule("get,list -,apps pods x"),
        urls("get,put /a,/b"),
        rule("get - pods"),
    ];
    assert_eq!(
        missing(&owner, &wanted),
        [
            rule("list - pods x"),
            rule("get apps pods x"),
            rule("list apps pods x"),
            urls("put /a"),
            urls("get /b"),
            urls("put /b"),
        ]
    );
}

/// A rule for both names and URLs, which the API server refuses to store: names of the owner do not reach URLs.
#[test]
fn names_do_not_carry_urls() {
    let mixed = PolicyRule {
        non_resource_urls: Some(vec!["/a".to_owned()]),
        ..rule("get - pods x")
    };
    assert_eq!(
        missing(std::slice::from_ref(&mixed), std::slice::from_ref(&mixed)),
        [urls("get /a")]
    );
}

/// Empty parts grant nothing, so nothing is missing.
#[test]
fn rules_without_atoms_are_covered() {
    let no_verbs = PolicyRule {
        verbs: vec![],
        ..rule("get - pods")
    };
    let no_resources = PolicyRule {
        resources: None,
        ..rule("get - pods")
    };
    assert!(covers(&[], &[no_verbs, no_resources]).is_empty());
}

fn words(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("w{i}")).collect()
}

fn cube(verbs: usize, groups: usize, resources: usize) -> PolicyRule {
    PolicyRule {
        verbs: words(verbs),
        api_groups: Some(words(groups)),
        resources: Some(words(resources)),
        ..PolicyRule::default()
    }
}

/// Three lists of two thousand words are eight thousand million atoms: they are counted without being looked at.
#[test]
fn the_first_of_what_is_missing_is_told_and_the_rest_is_counted() {
    let giant = cube(2_000, 2_000, 2_000);
    let all = 2_000 * 2_000 * 2_000;
    let shortfall = covers(
        &[rule("get - pods")],
        &[giant.clone(), rule("get - pods"), rule("put - pods")],
    );
    assert_eq!(shortfall.count, all + 1);
    let first: Vec<_> = (0..10).map(|verb| rule(&format!("w{verb} w0 w0"))).collect();
    assert_eq!(shortfall.first, first);
    assert!(!shortfall.cut_short);
    // One group is held, one resource of another: these are looked at, the others are not.
    let some = covers(&[rule("* w0 *"), rule("* w7 w9")], std::slice::from_ref(&giant));
    assert_eq!(some.count, all - 2_000 * 2_000 - 2_000);
    assert_eq!(some.first.first(), Some(&rule("w0 w1 w0")));
    // One rule that has it all settles it, with names too.
    let named = PolicyRule {
        resource_names: Some(words(2)),
        ..giant.clone()
    };
    assert_eq!(covers(&[rule("* * *")], &[giant, named]), Shortfall::default());
}

/// What is not compared any more is neither held nor missing, and fails closed.
#[test]
fn what_the_budget_does_not_reach_is_not_held() {
    let within = |owner: &[PolicyRule], wanted: &[PolicyRule], comparisons: u64| {
        let mut budget = Budget::new(comparisons);
        let shortfall = uncovered(owner, wanted, 10, &mut budget);
        assert!(!shortfall.cut_short || budget.is_spent());
        shortfall
    };
    let wanted = [rule("get,list - pods a,b"), urls("get,put /a,/b")];
    // Each covers a part: it takes all of them, and every atom is looked at.
    let owner = [
        rule("get - pods"),
        rule("list - pods a"),
        rule("list - pods b"),
        urls("* /a"),
        urls("* /b"),
    ];
    let enough = (0..1_000)
        .find(|&n| within(&owner, &wanted, n).is_empty())
        .unwrap();
    assert!((30..300).contains(&enough), "{enough}");
    for comparisons in 0..enough {
        let shortfall = within(&owner, &wanted, comparisons);
        // Nothing is called missing that is not.
        assert!(
            shortfall.cut_short && shortfall.count == 0,
            "{comparisons}: {shortfall:?}"
        );
    }
    // Every part counts: groups, resources, verbs, names and URLs.
    for large in [
        cube(1, 500, 500),
        cube(500, 500, 1),
        PolicyRule {
            resource_names: Some(words(500)),
            ..cube(1, 1, 500)
        },
        PolicyRule {
            verbs: words(500),
            non_resource_urls: Some(words(500)),
            ..PolicyRule::default()
        },
    ] {
        let owner = [large.clone()];
        let shortfall = within(&owner, std::slice::from_ref(&large), 5_000);
        assert!(shortfall.cut_short && shortfall.count == 0, "{}", shortfall.count);
        assert!(covers(&owner, &[large]).is_empty());
    }
}

#[test]
fn atoms_are_folded_for_reading() {
    let atoms = [
        rule("get - pods"),
        urls("get /a"),
        rule("list - pods"),
        rule("get - pods x"),
        rule("list apps pods"),
        rule("put - pods x"),
        urls("put /a"),
        rule("get - pods,nodes"),
        rule("list - pods,nodes"),
    ];
    assert_eq!(
        compact(&atoms),
        [
            rule("get,list - pods"),
            urls("get /a"),
            rule("get,put - pods x"),
            rule("list apps pods"),
            urls("put /a"),
            rule("get - pods,nodes"),
            rule("list - pods,nodes"),
        ]
    );
}

#[test]
fn a_rule_in_the_words_of_the_api_server() {
    assert_eq!(
        describe(&rule("get,list -,apps pods x")),
        r#"{APIGroups:["" "apps"], Resources:["pods"], ResourceNames:["x"], Verbs:["get" "list"]}"#
    );
    assert_eq!(
        describe(&urls("get /a")),
        r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#
    );
    assert_eq!(describe(&PolicyRule::default()), "{}");
}
