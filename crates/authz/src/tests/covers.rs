//! Tables for the escalation check. The same cases, and many more, are put to a real API server in `tests/real.rs`.

use super::*;
use crate::{compact, covers, describe};

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
        covers(&owner, &wanted),
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
        covers(std::slice::from_ref(&mixed), std::slice::from_ref(&mixed)),
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
    assert_eq!(covers(&[], &[no_verbs, no_resources]), []);
}

/// Three lists of two thousand words would be eight thousand million atoms.
#[test]
fn a_giant_rule_is_refused_not_counted_out() {
    let words = |n: usize| (0..n).map(|i| format!("w{i}")).collect::<Vec<_>>();
    let cube = |verbs: usize, groups: usize, resources: usize| PolicyRule {
        verbs: words(verbs),
        api_groups: Some(words(groups)),
        resources: Some(words(resources)),
        ..PolicyRule::default()
    };
    // The budget is shared: a few middling rules do not slip past it one by one, but small ones still fit. This comes
    // first, so that a count that is wrong fails here and does not fill the memory with the atoms of the giant.
    let middling = cube(60, 60, 30);
    let missing = covers(&[], &[middling.clone(), middling.clone(), rule("get - pods")]);
    assert_eq!(missing.len(), 60 * 60 * 30 + 2);
    assert_eq!(missing.iter().filter(|missing| **missing == middling).count(), 1);
    assert_eq!(missing.last(), Some(&rule("get - pods")));

    let giant = cube(2_000, 2_000, 2_000);
    let wanted = [giant.clone(), rule("get - pods")];
    assert_eq!(
        covers(&[rule("get - pods")], &wanted).as_slice(),
        std::slice::from_ref(&giant)
    );
    assert_eq!(covers(&[rule("* * *")], &wanted), []);
    let named = PolicyRule {
        resource_names: Some(words(2)),
        ..giant
    };
    assert_eq!(covers(&[rule("* * *")], &[named]), []);
}

/// Names and URLs count for the limit like all other parts.
#[test]
fn every_part_of_a_rule_counts_for_the_limit() {
    let words = |n: usize| Some((0..n).map(|i| format!("w{i}")).collect::<Vec<_>>());
    let named = PolicyRule {
        resources: words(500),
        resource_names: words(500),
        ..rule("get - pods")
    };
    let paths = PolicyRule {
        verbs: words(500).unwrap(),
        non_resource_urls: words(500),
        ..PolicyRule::default()
    };
    for large in [named, paths] {
        let missing = covers(&[], std::slice::from_ref(&large));
        assert!(missing == [large], "{} rules are missing, not one", missing.len());
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
