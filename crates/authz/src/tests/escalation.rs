//! Who may write which role and binding.

use super::*;
use crate::{Budget, Escalation, Key, Kind, Write};

const RBAC: &str = "rbac.authorization.k8s.io";
const NONE: &[&str] = &[];

/// An index in which `alice` holds these rules, in the cluster or in namespace `a`.
fn holding(wide: &[PolicyRule], local: &[PolicyRule]) -> Index {
    let mut index = Index::default();
    index.apply(&cluster_role("wide", wide)).unwrap();
    index
        .apply(&cluster_binding("wide", "ClusterRole:wide", &["user:alice"]))
        .unwrap();
    index.apply(&role("a", "local", local)).unwrap();
    index
        .apply(&binding("a", "local", "Role:local", &["user:alice"]))
        .unwrap();
    index
}

fn create<'a>(index: &Index, object: impl Into<crate::Object<'a>>) -> bool {
    index.may_write("alice", NONE, Write::Create, object).is_ok()
}

fn update<'a>(index: &Index, object: impl Into<crate::Object<'a>>) -> bool {
    index.may_write("alice", NONE, Write::Update, object).is_ok()
}

#[test]
fn only_what_is_held_can_be_given() {
    let index = holding(&[rule("get - pods")], &[rule("get - secrets")]);
    assert!(create(
        &index,
        &role("a", "r", &[rule("get - pods"), rule("get - secrets")])
    ));
    assert!(create(&index, &role("b", "r", &[rule("get - pods")])));
    assert!(!create(&index, &role("b", "r", &[rule("get - secrets")])));
    assert!(!create(&index, &role("a", "r", &[rule("list - pods")])));
    assert!(create(&index, &cluster_role("r", &[rule("get - pods")])));
    assert!(!create(&index, &cluster_role("r", &[rule("get - secrets")])));
    assert!(!update(&index, &cluster_role("wide", &[rule("* - pods")])));
    assert!(
        index
            .may_write(
                "mallory",
                &["system:masters"],
                Write::Create,
                &cluster_role("r", &[rule("* * *")])
            )
            .is_ok()
    );
    assert!(
        index
            .may_write("mallory", NONE, Write::Create, &cluster_role("r", &[]))
            .is_ok(),
        "nothing is given"
    );
}

#[test]
fn escalate_lifts_the_check() {
    let escalate = |resource: &str, names: &str| rule(&format!("escalate {RBAC} {resource}{names}"));
    let everything = [rule("* * *")];
    let index = holding(&[escalate("clusterroles", "")], &[escalate("roles", "")]);
    assert!(create(&index, &cluster_role("r", &everything)));
    assert!(create(&index, &role("a", "r", &everything)));
    assert!(!create(&index, &role("b", "r", &everything)));
    assert!(create(&index, &aggregated("r", &json!([{}]), &[])));
    // By name: a create has none in its request.
    let index = holding(&[escalate("clusterroles", " one")], &[escalate("roles", " one")]);
    assert!(!create(&index, &cluster_role("one", &everything)));
    assert!(update(&index, &cluster_role("one", &everything)));
    assert!(!update(&index, &cluster_role("two", &everything)));
    assert!(!create(&index, &role("a", "one", &everything)));
    assert!(update(&index, &role("a", "one", &everything)));
    // One kind does not lift the check of the other, and a namespace not that of the cluster.
    let index = holding(&[escalate("roles", "")], &[escalate("clusterroles", "")]);
    assert!(!create(&index, &cluster_role("r", &everything)));
    assert!(create(&index, &role("b", "r", &everything)));
}

#[test]
fn aggregation_needs_everything() {
    let selectors = json!([{"matchLabels": {"a": "1"}}]);
    let sum = aggregated("sum", &selectors, &[]);
    // Whoever holds everything may escalate anyway, so in effect this asks for `escalate`.
    let mut index = holding(&[rule("get * *"), urls("* *")], &[]);
    assert_eq!(
        index.may_write("alice", NONE, Write::Create, &sum),
        Err(Escalation::Aggregation)
    );
    assert!(
        create(&index, &aggregated("sum", &json!([]), &[])),
        "without a selector it is a plain role"
    );
    assert!(create(&holding(&[rule("* * *")], &[]), &sum));
    // Taking the selectors away counts, too; and a selector that is not valid is one all the same.
    index.apply(&sum).unwrap();
    assert!(!update(&index, &cluster_role("sum", &[])));
    assert!(
        create(&index, &cluster_role("sum", &[])),
        "a create has no old object"
    );
    let invalid = json!([{"matchExpressions": [{"key": "a", "operator": "Like"}]}]);
    index.apply(&aggregated("sum", &invalid, &[])).unwrap();
    assert!(!update(&index, &cluster_role("sum", &[])));
    index.remove(Key::new(Kind::ClusterRole, "", "sum"));
    assert!(update(&index, &cluster_role("sum", &[])));
}

#[test]
fn binding_needs_the_rules_or_the_verb() {
    let targets = |mut index: Index| {
        index.apply(&cluster_role("pods", &[rule("get - pods")])).unwrap();
        index.apply(&cluster_role("all", &[rule("* * *")])).unwrap();
        index.apply(&role("a", "pods", &[rule("get - pods")])).unwrap();
        index.apply(&role("a", "all", &[rule("* * *")])).unwrap();
        index
    };
    let index = targets(holding(&[], &[rule("get - pods")]));
    assert!(create(&index, &binding("a", "b", "ClusterRole:pods", &[])));
    assert!(create(&index, &binding("a", "b", "Role:pods", &[])));
    assert!(!create(&index, &binding("a", "b", "ClusterRole:all", &[])));
    assert!(!create(&index, &binding("a", "b", "Role:all", &[])));
    assert!(!create(&index, &binding("b", "b", "ClusterRole:pods", &[])));
    assert!(!create(&index, &cluster_binding("b", "ClusterRole:pods", &[])));
    assert!(create(
        &targets(holding(&[rule("get - pods")], &[])),
        &cluster_binding("b", "ClusterRole:pods", &[])
    ));

    let bind = |resource: &str| rule(&format!("bind {RBAC} {resource} all"));
    let index = targets(holding(&[], &[bind("clusterroles")]));
    assert!(create(&index, &binding("a", "b", "ClusterRole:all", &[])));
    assert!(update(&index, &binding("a", "b", "ClusterRole:all", &[])));
    assert!(!create(&index, &binding("a", "b", "ClusterRole:pods", &[])));
    assert!(!create(&index, &binding("a", "b", "Role:all", &[])));
    assert!(!create(&index, &binding("b", "b", "ClusterRole:all", &[])));
    assert!(!create(&index, &cluster_binding("b", "ClusterRole:all", &[])));
    let index = targets(holding(&[bind("clusterroles"), bind("roles")], &[]));
    assert!(create(&index, &cluster_binding("b", "ClusterRole:all", &[])));
    assert!(
        create(&index, &binding("b", "b", "Role:all", &[])),
        "bind does not ask whether the role exists"
    );
    // A reference without a group means the group of RBAC.
    let mut short = binding("a", "b", "ClusterRole:all", &[]);
    for group in [None, Some(String::new())] {
        short.role_ref.api_group = group;
        assert!(create(&index, &short));
    }
    short.role_ref.api_group = Some("example.com".to_owned());
    assert!(!create(&index, &short), "the verb is held for another group");
    let member = index.may_bind(
        "mallory",
        &["system:masters"],
        "",
        &binding("a", "b", "ClusterRole:gone", &[]).role_ref,
    );
    assert_eq!(member, Ok(()));
}

#[test]
fn a_missing_role_can_only_be_bound_with_the_verb() {
    let refused = |index: &Index, role: &str| {
        let binding = binding("a", "b", role, &[]);
        index
            .may_write("alice", NONE, Write::Create, &binding)
            .unwrap_err()
            .to_string()
    };
    let index = holding(&[rule("get - pods")], &[]);
    assert_eq!(refused(&index, "Role:gone"), r#"Role "gone" not found"#);
    assert_eq!(
        refused(&index, "ClusterRole:gone"),
        r#"ClusterRole "gone" not found"#
    );
    assert_eq!(refused(&index, "Widget:wide"), r#"Widget "wide" not found"#);
}

#[test]
fn a_refusal_has_the_words_of_the_api_server() {
    let index = holding(&[rule("get - pods")], &[]);
    let wanted = cluster_role("r", &[rule("get,list,watch - pods,nodes"), rule("list - pods")]);
    let refused = index
        .may_write("alice", &["dev", "ops"], Write::Create, &wanted)
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "user \"alice\" (groups=[\"dev\" \"ops\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\" \"watch\"]}\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\" \"list\"]}"
    );
    let twice = cluster_role("r", &[urls("get /a"), rule("list - pods"), urls("get /a")]);
    let refused = index.may_write("alice", NONE, Write::Create, &twice).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "user \"alice\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
         {NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}"
    );
    assert_eq!(
        Escalation::Aggregation.to_string(),
        "must have cluster-admin privileges to use the aggregationRule"
    );
}

/// Whoever is refused decides neither how long the refusal is nor how long it takes.
#[test]
fn a_refusal_is_short_whatever_is_wanted() {
    let index = holding(&[rule("get - pods")], &[]);
    let words = |n: usize, length: usize| {
        (0..n)
            .map(|i| format!("{i}-{}", "\u{e9}".repeat(length)))
            .collect()
    };
    let refused = |rules: &[PolicyRule]| index.holds("alice", NONE, "a", rules).unwrap_err().to_string();
    let wide = PolicyRule {
        api_groups: Some(words(440, 3)),
        resources: Some(words(440, 3)),
        ..rule("get - -")
    };
    let text = refused(std::slice::from_ref(&wide));
    assert!(text.len() < 2_000, "{}", text.len());
    assert!(text.ends_with("\nand 193590 more"), "{text}");
    let long = PolicyRule {
        api_groups: Some(words(20, 100_000)),
        resource_names: Some(words(20, 100_000)),
        ..rule("get - pods")
    };
    let text = refused(&[long]);
    assert!(text.len() < 10_000, "{}", text.len());
    assert!(text.ends_with("\nand 390 more"), "{text}");
}

#[test]
fn questions_can_share_a_budget() {
    let index = holding(&[rule("get - pods")], &[]);
    let holds =
        |budget: &mut Budget, wanted: &str| index.holds_within("alice", NONE, "a", &[rule(wanted)], budget);
    let mut budget = Budget::new(120);
    let held = (0..100)
        .take_while(|_| holds(&mut budget, "get - pods") == Ok(()))
        .count();
    assert!((2..5).contains(&held), "{held}");
    assert!(budget.is_spent());
    let refused = holds(&mut budget, "get - pods").unwrap_err();
    assert_eq!(
        refused.to_string(),
        r#"there are too many permissions to compare with those of user "alice": split the rules"#
    );
    // Nothing is always held, and what is known to be missing is told as such.
    assert_eq!(index.holds_within("alice", NONE, "a", &[], &mut budget), Ok(()));
    let refused = holds(&mut Budget::new(40), "put - nodes").unwrap_err();
    assert!(matches!(refused, Escalation::NotHeld { .. }), "{refused}");
}
