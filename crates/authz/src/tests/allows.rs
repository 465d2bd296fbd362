//! One rule against one request, and who a binding reaches.

use super::*;

/// Each rule, bound to alice in the cluster, with requests it allows and requests it does not.
#[test]
fn what_a_rule_allows() {
    let table: &[(PolicyRule, &[&str], &[&str])] = &[
        (
            rule("get,list - pods"),
            &["get - pods a x", "list - pods a", "get - pods - x", "list - pods"],
            &[
                "watch - pods a",
                "get apps pods a x",
                "get - pods/log a x",
                "get - services a",
                "GET - pods a",
                "* - pods a",
            ],
        ),
        (
            rule("* apps deployments"),
            &[
                "get apps deployments a",
                "* apps deployments a",
                "anything apps deployments a x",
            ],
            &[
                "get - deployments a",
                "get apps deployments/scale a x",
                "get * deployments a",
            ],
        ),
        (
            rule("get * pods"),
            &["get - pods a", "get apps pods a", "get * pods a"],
            &["get - nodes", "list - pods a"],
        ),
        (
            rule("get - *"),
            &[
                "get - pods a",
                "get - pods/log a x",
                "get - *",
                "get - nodes/proxy - n",
            ],
            &["get apps deployments a", "list - pods a"],
        ),
        (
            rule("get - pods/log"),
            &["get - pods/log a x"],
            &[
                "get - pods a x",
                "get - pods/exec a x",
                "get - deployments/log a x",
            ],
        ),
        (
            rule("get - */scale"),
            &["get - pods/scale a x", "get - anything/scale a"],
            &[
                "get - pods a x",
                "get - scale a",
                "get - pods/status a x",
                "get - pods/xscale a",
                "get - pods/scal a",
            ],
        ),
        (
            rule("get - pods/*"),
            &["get - pods/* a x"],
            &["get - pods a x", "get - pods/log a x"],
        ),
        (
            rule("get,create,list - secrets one,two"),
            &[
                "get - secrets a one",
                "get - secrets a two",
                "get - secrets - one",
            ],
            &[
                "get - secrets a three",
                "get - secrets a",
                "create - secrets a",
                "list - secrets a",
                "get - secrets a *",
            ],
        ),
        // In resourceNames a star is just a name.
        (
            rule("get - secrets *"),
            &["get - secrets a *"],
            &["get - secrets a one", "get - secrets a"],
        ),
        (
            urls("get /healthz,/version/*"),
            &["get /healthz", "get /version/", "get /version/x/y"],
            &[
                "get /version",
                "get /healthz/",
                "post /healthz",
                "get /",
                "get - pods a",
            ],
        ),
        (
            urls("* *"),
            &["get /", "post /anything"],
            &["get - pods a", "* * *"],
        ),
        (urls("get /a**"), &["get /a", "get /abc"], &["get /b"]),
        (
            rule("* * *"),
            &["get - pods a x", "* * *", "impersonate - users - bob"],
            &["get /", "get /healthz"],
        ),
    ];
    for (rule, allowed, denied) in table {
        let mut index = Index::default();
        index
            .apply(&cluster_role("r", std::slice::from_ref(rule)))
            .unwrap();
        index
            .apply(&cluster_binding("b", "ClusterRole:r", &["user:alice"]))
            .unwrap();
        for text in *allowed {
            assert!(allows(&index, "alice", &[], text), "{rule:?} must allow {text}");
            assert!(
                !allows(&index, "bob", &["alice"], text),
                "only alice is bound: {text}"
            );
        }
        for text in *denied {
            assert!(
                !allows(&index, "alice", &[], text),
                "{rule:?} must not allow {text}"
            );
        }
    }
}

/// A rule is one grant: parts of two rules never add up.
#[test]
fn rules_do_not_mix() {
    let mut index = Index::default();
    index
        .apply(&cluster_role(
            "r",
            &[rule("get - pods"), rule("list apps deployments")],
        ))
        .unwrap();
    index
        .apply(&cluster_binding("b", "ClusterRole:r", &["user:alice"]))
        .unwrap();
    assert!(allows(&index, "alice", &[], "get - pods a"));
    assert!(allows(&index, "alice", &[], "list apps deployments a"));
    let decision = index.allows("alice", &[] as &[&str], &ask("list apps deployments a"));
    let crate::Decision::Allow(grant) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(
        index.chain(&grant).unwrap().rule,
        rule("list apps deployments"),
        "the rule that allows it is told"
    );
    for text in ["list - pods a", "get apps deployments a", "get apps pods a"] {
        assert!(!allows(&index, "alice", &[], text), "{text}");
    }
}

#[test]
fn who_a_binding_reaches() {
    let cases: &[(&[&str], &str, &[&str], bool)] = &[
        (&["user:alice"], "alice", &[], true),
        (&["user:alice"], "Alice", &[], false),
        (&["group:dev"], "alice", &["dev"], true),
        (&["group:dev"], "alice", &["ops", "dev"], true),
        (&["group:dev"], "dev", &[], false),
        (&["user:alice"], "bob", &["alice"], false),
        (&["user:bob", "group:dev", "user:alice"], "alice", &[], true),
        (&["sa:robot"], "system:serviceaccount:here:robot", &[], true),
        (&["sa:robot"], "system:serviceaccount:there:robot", &[], false),
        (
            &["sa:there/robot"],
            "system:serviceaccount:there:robot",
            &[],
            true,
        ),
        (
            &["sa:there/robot"],
            "system:serviceaccount:here:robot",
            &[],
            false,
        ),
        (&["sa:robot"], "robot", &[], false),
        (
            &["user:system:serviceaccount:there:robot"],
            "system:serviceaccount:there:robot",
            &[],
            true,
        ),
        (
            &["group:system:serviceaccounts:there"],
            "x",
            &["system:serviceaccounts:there"],
            true,
        ),
        (&["Robot:alice"], "alice", &["alice"], false),
        (&[], "alice", &["dev"], false),
    ];
    for (subjects, user, groups, reached) in cases {
        let mut index = Index::default();
        index.apply(&role("here", "r", &[rule("get - pods")])).unwrap();
        index.apply(&binding("here", "b", "Role:r", subjects)).unwrap();
        assert_eq!(
            allows(&index, user, groups, "get - pods here"),
            *reached,
            "{subjects:?} {user} {groups:?}"
        );
    }
}

/// In a ClusterRoleBinding there is no namespace to default to.
#[test]
fn service_account_without_namespace_in_the_cluster() {
    let mut index = Index::default();
    index.apply(&cluster_role("r", &[rule("get - pods")])).unwrap();
    index
        .apply(&cluster_binding("b", "ClusterRole:r", &["sa:robot"]))
        .unwrap();
    for user in [
        "system:serviceaccount::robot",
        "robot",
        "system:serviceaccount:a:robot",
    ] {
        assert!(!allows(&index, user, &[], "get - pods a"), "{user}");
    }
}

#[test]
fn where_a_binding_reaches() {
    let mut index = Index::default();
    index
        .apply(&cluster_role("wide", &[rule("get - pods"), urls("get /metrics")]))
        .unwrap();
    index
        .apply(&role("a", "local", &[rule("get - secrets")]))
        .unwrap();
    index.apply(&role("b", "other", &[rule("get - nodes")])).unwrap();
    index
        .apply(&binding("a", "one", "ClusterRole:wide", &["user:alice"]))
        .unwrap();
    index
        .apply(&binding("a", "two", "Role:local", &["user:alice"]))
        .unwrap();
    index
        .apply(&binding("a", "three", "Role:other", &["user:alice"]))
        .unwrap();
    index
        .apply(&cluster_binding("four", "Role:local", &["user:alice"]))
        .unwrap();
    index
        .apply(&binding("a", "five", "Widget:wide", &["user:alice"]))
        .unwrap();
    for (text, allowed) in [
        ("get - pods a", true),
        ("get - pods b", false),
        ("get - pods", false),
        ("get - pods nowhere", false),
        ("get - secrets a", true),
        ("get - secrets b", false),
        ("get - secrets", false),
        // The Role is in another namespace than the binding.
        ("get - nodes a", false),
        ("get - nodes b", false),
        // A RoleBinding never grants a path.
        ("get /metrics", false),
    ] {
        assert_eq!(allows(&index, "alice", &[], text), allowed, "{text}");
    }
    index
        .apply(&cluster_binding("six", "ClusterRole:wide", &["user:alice"]))
        .unwrap();
    for text in ["get - pods b", "get - pods", "get - pods nowhere", "get /metrics"] {
        assert!(allows(&index, "alice", &[], text), "{text}");
    }
}

#[test]
fn superusers_are_not_asked() {
    let index = Index::default();
    assert_eq!(
        index.allows("x", &["system:masters"], &ask("get - pods a")),
        crate::Decision::Superuser
    );
    assert!(!allows(&index, "system:masters", &["masters"], "get - pods a"));
}

#[test]
fn the_reason_is_that_of_the_api_server() {
    let mut index = Index::default();
    index.apply(&role("here", "r", &[rule("get - pods")])).unwrap();
    index
        .apply(&binding("here", "b", "Role:r", &["sa:robot"]))
        .unwrap();
    index.apply(&cluster_role("c", &[rule("get - nodes")])).unwrap();
    index
        .apply(&cluster_binding("d", "ClusterRole:c", &["group:dev"]))
        .unwrap();
    // Of several subjects that are the asker, the first is told.
    for (name, subjects) in [
        ("group-first", ["group:ops", "group:dev", "user:alice"]),
        ("user-first", ["user:bob", "user:alice", "group:dev"]),
    ] {
        let rules = [rule(&format!("get - {name}"))];
        index.apply(&cluster_role(name, &rules)).unwrap();
        let to = format!("ClusterRole:{name}");
        index.apply(&cluster_binding(name, &to, &subjects)).unwrap();
    }
    let reason = |user: &str, groups: &[&str], text: &str| match index.allows(user, groups, &ask(text)) {
        crate::Decision::Allow(grant) => index.chain(&grant).unwrap().reason(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason("system:serviceaccount:here:robot", &[], "get - pods here"),
        r#"RBAC: allowed by RoleBinding "b/here" of Role "r" to ServiceAccount "robot/here""#
    );
    assert_eq!(
        reason("x", &["dev"], "get - nodes"),
        r#"RBAC: allowed by ClusterRoleBinding "d" of ClusterRole "c" to Group "dev""#
    );
    for (text, told) in [
        ("get - group-first", r#"Group "dev""#),
        ("get - user-first", r#"User "alice""#),
    ] {
        let reason = reason("alice", &["dev"], text);
        assert!(reason.ends_with(&format!(" to {told}")), "{reason}");
    }
}
