//! Objects come, change and go; ClusterRoles aggregate.

use super::*;
use crate::{Aggregation, InvalidObject, Key, Kind};

#[test]
fn objects_come_change_and_go() {
    let mut index = Index::default();
    let empty = index.name_count();
    index
        .apply(&binding("a", "b", "Role:r", &["user:alice", "group:dev"]))
        .unwrap();
    assert!(
        !allows(&index, "alice", &[], "get - pods a"),
        "the role is not there yet"
    );
    index.apply(&role("a", "r", &[rule("get - pods")])).unwrap();
    assert!(allows(&index, "alice", &[], "get - pods a"));
    index.apply(&role("a", "r", &[rule("list - pods")])).unwrap();
    assert!(!allows(&index, "alice", &[], "get - pods a"));
    assert!(allows(&index, "bob", &["dev"], "list - pods a"));
    index
        .apply(&binding("a", "b", "Role:r", &["user:alice"]))
        .unwrap();
    assert!(!allows(&index, "bob", &["dev"], "list - pods a"));
    assert!(allows(&index, "alice", &[], "list - pods a"));
    assert_eq!((index.role_count(), index.binding_count()), (1, 1));
    assert_eq!(
        index.name_count(),
        empty + 7,
        "a, b, r, alice, list, the core group and pods"
    );
    assert!(!index.remove(Key::new(Kind::Role, "b", "r")), "another namespace");
    assert!(
        !index.remove(Key::new(Kind::ClusterRole, "a", "r")),
        "another kind"
    );
    assert!(!index.remove(Key::new(Kind::ClusterRoleBinding, "a", "b")));
    assert!(index.remove(Key::new(Kind::Role, "a", "r")));
    assert!(!allows(&index, "alice", &[], "list - pods a"));
    index.apply(&role("a", "r", &[rule("list - pods")])).unwrap();
    assert!(allows(&index, "alice", &[], "list - pods a"));
    assert!(index.remove(&binding("a", "b", "Role:r", &[])));
    assert!(!index.remove(&binding("a", "b", "Role:r", &[])));
    assert!(!allows(&index, "alice", &[], "list - pods a"));
    assert!(index.remove(&role("a", "r", &[])));
    assert_eq!((index.role_count(), index.binding_count()), (0, 0));
    assert_eq!(index.name_count(), empty, "no text is kept");
}

/// What a binding granted goes with it, also where another one still names the same users and groups; and only that.
#[test]
fn a_binding_goes_without_touching_the_others() {
    let grants = |edit: &dyn Fn(&mut Index)| {
        let mut index = Index::default();
        for name in ["pods", "nodes"] {
            let rules = [rule(&format!("get - {name}"))];
            index.apply(&role("a", name, &rules)).unwrap();
            index
                .apply(&binding(
                    "a",
                    name,
                    &format!("Role:{name}"),
                    &["user:alice", "group:dev"],
                ))
                .unwrap();
        }
        edit(&mut index);
        let asked = [
            ("alice", &[] as &[&str], "get - pods a"),
            ("bob", &["dev"], "get - pods a"),
            ("alice", &[], "get - nodes a"),
            ("bob", &["dev"], "get - nodes a"),
        ];
        asked.map(|(user, groups, text)| allows(&index, user, groups, text))
    };
    let bind = |subjects: &[&str]| binding("a", "pods", "Role:pods", subjects);
    assert_eq!(grants(&|_| {}), [true, true, true, true]);
    assert_eq!(
        grants(&|index| index.apply(&bind(&["user:alice"])).unwrap()),
        [true, false, true, true]
    );
    assert_eq!(
        grants(&|index| index.apply(&bind(&["group:dev"])).unwrap()),
        [false, true, true, true]
    );
    assert_eq!(
        grants(&|index| assert!(index.remove(&bind(&[])))),
        [false, false, true, true]
    );
}

/// A Role and a ClusterRole, a namespace and a role may share a name.
#[test]
fn kinds_and_namespaces_do_not_mix() {
    let mut index = Index::default();
    index.apply(&role("x", "x", &[rule("get - x")])).unwrap();
    index.apply(&cluster_role("x", &[rule("list - x")])).unwrap();
    index.apply(&binding("x", "x", "Role:x", &["user:x"])).unwrap();
    assert!(allows(&index, "x", &[], "get - x x"));
    assert!(!allows(&index, "x", &[], "list - x x"));
    index
        .apply(&cluster_binding("x", "ClusterRole:x", &["group:x"]))
        .unwrap();
    assert!(allows(&index, "y", &["x"], "list - x x"));
    assert!(!allows(&index, "y", &["x"], "get - x x"));
    // A namespace that no object has is not the cluster.
    assert!(!index.remove(Key::new(Kind::Role, "nowhere", "x")));
    assert!(!index.remove(Key::new(Kind::RoleBinding, "nowhere", "x")));
    assert_eq!(index.role_rules(Key::new(Kind::Role, "nowhere", "x")), None);
    assert!(allows(&index, "y", &["x"], "list - x x"));
    assert!(index.remove(Key::new(Kind::ClusterRoleBinding, "", "x")));
    assert!(allows(&index, "x", &[], "get - x x"));
}

#[test]
fn a_clone_is_a_what_if() {
    let mut live = Index::default();
    live.apply(&role("a", "r", &[rule("get - pods")])).unwrap();
    live.apply(&binding("a", "b", "Role:r", &["user:alice"])).unwrap();
    let mut what_if = live.clone();
    what_if.apply(&role("a", "r", &[rule("delete - pods")])).unwrap();
    what_if
        .apply(&binding("a", "c", "Role:r", &["user:bob"]))
        .unwrap();
    assert!(allows(&what_if, "bob", &[], "delete - pods a"));
    assert!(allows(&live, "alice", &[], "get - pods a"));
    assert!(!allows(&live, "bob", &[], "delete - pods a"));
}

#[test]
fn objects_without_an_address_are_refused() {
    let mut index = Index::default();
    let mut nameless = cluster_role("", &[rule("* * *")]);
    assert_eq!(
        index.apply(&nameless),
        Err(InvalidObject::NoName(Kind::ClusterRole))
    );
    nameless.metadata.name = None;
    assert_eq!(
        index.apply(&nameless),
        Err(InvalidObject::NoName(Kind::ClusterRole))
    );
    let homeless = binding("", "b", "ClusterRole:r", &["user:alice"]);
    assert_eq!(
        index.apply(&homeless),
        Err(InvalidObject::NoNamespace(Kind::RoleBinding, "b".to_owned()))
    );
    let homeless = role("", "r", &[rule("* * *")]);
    assert_eq!(
        index.apply(&homeless).unwrap_err().to_string(),
        r#"Role "r" has no metadata.namespace"#
    );
    assert_eq!((index.role_count(), index.binding_count()), (0, 0));
}

fn index_of(aggregation: Aggregation, roles: &[ClusterRole]) -> Index {
    let mut index = Index::new(aggregation);
    for role in roles {
        index.apply(role).unwrap();
    }
    index
}

fn rules_of(index: &Index, name: &str) -> Vec<PolicyRule> {
    index.role_rules(Key::new(Kind::ClusterRole, "", name)).unwrap()
}

#[test]
fn selectors() {
    let on = |values: &Value| json!([{"matchExpressions": [values]}]);
    let with_both =
        json!([{"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}]);
    let cases = [
        (json!([{"matchLabels": {"a": "1"}}]), vec!["a1", "a1b1"]),
        (json!([{"matchLabels": {"a": "1", "b": "1"}}]), vec!["a1b1"]),
        (
            json!([{"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "2"}}]),
            vec!["a1", "a1b1", "a2"],
        ),
        (
            on(&json!({"key": "a", "operator": "In", "values": ["1", "2"]})),
            vec!["a1", "a1b1", "a2"],
        ),
        (
            on(&json!({"key": "a", "operator": "NotIn", "values": ["1"]})),
            vec!["a2", "none"],
        ),
        (
            on(&json!({"key": "a", "operator": "Exists"})),
            vec!["a1", "a1b1", "a2"],
        ),
        (on(&json!({"key": "a", "operator": "DoesNotExist"})), vec!["none"]),
        (with_both, vec!["a1b1"]),
        (json!([{}]), vec!["a1", "a1b1", "a2", "none"]),
        (json!([]), vec![]),
    ];
    for (selectors, sources) in cases {
        let named = |name: &str| cluster_role(name, &[rule(&format!("get - {name}"))]);
        let index = index_of(
            Aggregation::Computed,
            &[
                named("none"),
                labelled(named("a2"), "a", "2"),
                aggregated("sum", &selectors, &[rule("get - stale")]),
                labelled(labelled(named("a1b1"), "a", "1"), "b", "1"),
                labelled(named("a1"), "a", "1"),
            ],
        );
        let expected: Vec<_> = sources
            .iter()
            .map(|name| rule(&format!("get - {name}")))
            .collect();
        assert_eq!(rules_of(&index, "sum"), expected, "{selectors}");
    }
}

/// The controller cannot use such a role, so what is stored stays.
#[test]
fn an_invalid_selector_leaves_the_stored_rules() {
    let invalid = [
        json!({"key": "a", "operator": "Like", "values": ["1"]}),
        json!({"key": "a", "operator": "In"}),
        json!({"key": "a", "operator": "NotIn", "values": []}),
        json!({"key": "a", "operator": "Exists", "values": ["1"]}),
        json!({"key": "a", "operator": "DoesNotExist", "values": ["1"]}),
    ];
    for expression in invalid {
        let selectors = json!([{"matchLabels": {"a": "1"}}, {"matchExpressions": [expression]}]);
        let mut index = Index::new(Aggregation::Computed);
        let before = index.name_count();
        let sum = aggregated("sum", &selectors, &[rule("get - stored")]);
        index.apply(&sum).unwrap();
        index
            .apply(&labelled(cluster_role("x", &[rule("get - x")]), "a", "1"))
            .unwrap();
        assert_eq!(rules_of(&index, "sum"), [rule("get - stored")], "{selectors}");
        index.remove(&sum);
        index.remove(Key::new(Kind::ClusterRole, "", "x"));
        assert_eq!(index.name_count(), before);
    }
}

#[test]
fn what_counts_of_an_aggregated_role() {
    let roles = [
        aggregated(
            "sum",
            &json!([{"matchLabels": {"a": "1"}}]),
            &[rule("get - stored"), rule("get - x")],
        ),
        labelled(cluster_role("x", &[rule("get - x")]), "a", "1"),
    ];
    for (aggregation, expected) in [
        (Aggregation::Stored, vec![rule("get - stored"), rule("get - x")]),
        (Aggregation::Computed, vec![rule("get - x")]),
        (
            Aggregation::StoredAndComputed,
            vec![rule("get - x"), rule("get - stored")],
        ),
    ] {
        assert_eq!(
            rules_of(&index_of(aggregation, &roles), "sum"),
            expected,
            "{aggregation:?}"
        );
    }
}

/// Through levels and around circles, following every change.
#[test]
fn aggregation_follows_changes() {
    let select = |value: &str| json!([{"matchLabels": {"in": value}}]);
    let mut index = index_of(
        Aggregation::Computed,
        &[
            aggregated("top", &select("top"), &[]),
            labelled(aggregated("middle", &select("middle"), &[]), "in", "top"),
            labelled(cluster_role("leaf", &[rule("get - leaf")]), "in", "middle"),
        ],
    );
    assert_eq!(rules_of(&index, "top"), [rule("get - leaf")]);
    assert_eq!(rules_of(&index, "middle"), [rule("get - leaf")]);

    // New rules of a source count at once, a new source too.
    index
        .apply(&labelled(
            cluster_role("leaf", &[rule("list - leaf")]),
            "in",
            "middle",
        ))
        .unwrap();
    index
        .apply(&labelled(
            cluster_role("other", &[rule("get - other")]),
            "in",
            "top",
        ))
        .unwrap();
    assert_eq!(
        rules_of(&index, "top"),
        [rule("list - leaf"), rule("get - other")]
    );

    // A circle is no trouble.
    let circle = aggregated(
        "middle",
        &json!([{"matchLabels": {"in": "middle"}}, {"matchLabels": {"in": "x"}}]),
        &[],
    );
    index.apply(&labelled(circle, "in", "top")).unwrap();
    index
        .apply(&labelled(aggregated("top", &select("top"), &[]), "in", "x"))
        .unwrap();
    assert_eq!(
        rules_of(&index, "top"),
        [rule("list - leaf"), rule("get - other")]
    );
    assert_eq!(
        rules_of(&index, "middle"),
        [rule("list - leaf"), rule("get - other")]
    );

    // A source loses its label, goes, or the aggregate becomes a plain role.
    index
        .apply(&cluster_role("other", &[rule("get - other")]))
        .unwrap();
    assert_eq!(rules_of(&index, "top"), [rule("list - leaf")]);
    index.remove(Key::new(Kind::ClusterRole, "", "leaf"));
    assert_eq!(rules_of(&index, "top"), []);
    index.apply(&cluster_role("top", &[rule("get - own")])).unwrap();
    assert_eq!(rules_of(&index, "top"), [rule("get - own")]);
    index.remove(Key::new(Kind::ClusterRole, "", "middle"));
    assert_eq!(index.role_rules(Key::new(Kind::ClusterRole, "", "middle")), None);
}

/// Other selectors alone, on a role with the same labels, are a change; and they go with the role.
#[test]
fn selectors_change_and_go() {
    let select = |value: &str| json!([{"matchLabels": {"in": value}}]);
    let mut index = index_of(
        Aggregation::Computed,
        &[
            labelled(cluster_role("one", &[rule("get - one")]), "in", "one"),
            labelled(cluster_role("two", &[rule("get - two")]), "in", "two"),
        ],
    );
    let before = index.name_count();
    for source in ["one", "two", "one"] {
        index.apply(&aggregated("sum", &select(source), &[])).unwrap();
        assert_eq!(rules_of(&index, "sum"), [rule(&format!("get - {source}"))]);
    }
    index.apply(&aggregated("sum", &select("three"), &[])).unwrap();
    assert_eq!(rules_of(&index, "sum"), []);
    index.remove(Key::new(Kind::ClusterRole, "", "sum"));
    assert_eq!(index.name_count(), before, "no text is kept");
}

/// Without the aggregate in the middle there is no way from the leaf to the top.
#[test]
fn a_removed_aggregate_passes_nothing_on() {
    let select = |value: &str| json!([{"matchLabels": {"in": value}}]);
    let middle = labelled(aggregated("middle", &select("middle"), &[]), "in", "top");
    let mut index = index_of(
        Aggregation::Computed,
        &[
            aggregated("top", &select("top"), &[]),
            middle.clone(),
            labelled(cluster_role("leaf", &[rule("get - leaf")]), "in", "middle"),
        ],
    );
    index.remove(&middle);
    assert_eq!(rules_of(&index, "top"), []);
    index.apply(&middle).unwrap();
    assert_eq!(rules_of(&index, "top"), [rule("get - leaf")]);
}

/// Roles in namespaces are never selected, and a role does not select itself.
#[test]
fn only_other_cluster_roles_are_selected() {
    let mut index = index_of(
        Aggregation::Computed,
        &[labelled(
            aggregated("sum", &json!([{}]), &[rule("get - own")]),
            "a",
            "1",
        )],
    );
    let mut in_namespace = role("a", "r", &[rule("get - local")]);
    in_namespace.metadata.labels = Some([("a".to_owned(), "1".to_owned())].into());
    index.apply(&in_namespace).unwrap();
    assert_eq!(rules_of(&index, "sum"), []);
}

/// A Role that shares its name with an aggregate, with a source or with a role left out changes nothing of them.
#[test]
fn roles_in_namespaces_leave_aggregates_alone() {
    let mut index = index_of(
        Aggregation::Computed,
        &[
            aggregated(
                "sum",
                &json!([{"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["2"]}]}]),
                &[],
            ),
            aggregated("one", &json!([{"matchLabels": {"a": "1"}}]), &[]),
            labelled(cluster_role("in", &[rule("get - in")]), "a", "1"),
            labelled(cluster_role("out", &[rule("get - out")]), "a", "2"),
        ],
    );
    let names = ["sum", "one", "in", "out"];
    let check = |index: &Index, name: &str| {
        for aggregate in ["sum", "one"] {
            assert_eq!(
                rules_of(index, aggregate),
                [rule("get - in")],
                "{aggregate} {name}"
            );
        }
    };
    for name in names {
        index.apply(&role("a", name, &[rule("get - local")])).unwrap();
        check(&index, name);
    }
    for name in names {
        index.remove(Key::new(Kind::Role, "a", name));
        check(&index, name);
    }
}
