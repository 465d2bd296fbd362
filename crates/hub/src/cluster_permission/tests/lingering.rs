//! Within one change: grant first, revoke last.

use super::*;

fn named(name: &str, who: &str) -> Value {
    json!({"roles": [{"namespace": "a", "rules": rules()}], "roleBindings": [
        {"namespace": "a", "name": name, "roleRef": {"kind": "Role"}, "subject": user(who)}]})
}

fn selected(name: &str, who: &str) -> Value {
    json!({"roles": [{"namespaceSelector": {}, "rules": rules()}], "roleBindings": [
        {"namespaceSelector": {}, "name": name, "roleRef": {"kind": "Role"}, "subject": user(who)}]})
}

/// What the agent says of every grant.
fn expand(world: &mut World, observed: i64, selected: i64, ready: i64) {
    for work in world.works.values_mut() {
        let reports = &mut work.status.as_mut().unwrap().resource_status.manifests;
        for report in reports
            .iter_mut()
            .filter(|r| r.resource_meta.kind == "NamespaceGrant")
        {
            let value =
                |name: &str, n: i64| json!({"name": name, "fieldValue": {"type": "Integer", "integer": n}});
            let values = [
                value("generation", 1),
                value("observedGeneration", observed),
                value("selected", selected),
                value("ready", ready),
            ];
            report.status_feedback = serde_json::from_value(json!({ "values": values })).unwrap();
        }
    }
}

/// What is there without the grants.
fn by_name(world: &World) -> Vec<String> {
    let ids = world.ids().into_iter();
    ids.filter(|id| !id.starts_with("NamespaceGrant")).collect()
}

fn delivered(spec: Value) -> World {
    let mut world = World::new(spec);
    // The hub's own namespaces are read, and none is selected.
    world.hub_namespaces = Some(Vec::new());
    world.reconcile();
    world.agent(&[]);
    expand(&mut world, 1, 1, 1);
    world.reconcile();
    assert_eq!(world.condition("Ready").1, "Granted");
    world
}

#[test]
fn named_object_stays_until_its_selector_is_expanded() {
    let both = ["Role a/p", "RoleBinding a/x"];
    let mut world = delivered(named("x", "alice"));
    world.permission = permission(selected("x", "alice"));
    for _ in 0..2 {
        world.reconcile();
        assert_eq!(by_name(&world), both);
        assert_eq!(world.ids().len(), 4);
        assert_eq!(world.condition("Ready").1, "Pending");
    }
    world.agent(&[]);
    assert_eq!(by_name(&world), both, "applied and not expanded");
    expand(&mut world, 0, 0, 0);
    assert_eq!(by_name(&world), both, "feedback on an older generation");
    // The selector may not even select that namespace: then it is revoked now.
    expand(&mut world, 1, 0, 0);
    assert!(by_name(&world).is_empty(), "{:?}", world.ids());
    world.reconcile();
    world.agent(&[]);
    expand(&mut world, 1, 0, 0);
    assert_eq!(world.condition("Ready").1, "Granted");

    // A grant that cannot be applied is not waited for: what it would select is unknown.
    let mut world = delivered(named("x", "alice"));
    world.permission = permission(selected("x", "alice"));
    world.reconcile();
    let grants = world.ids();
    let grants: Vec<&str> = grants
        .iter()
        .filter_map(|id| id.strip_prefix("NamespaceGrant "))
        .collect();
    world.agent(&grants);
    assert!(by_name(&world).is_empty(), "{:?}", world.ids());
}

#[test]
fn named_object_stays_only_if_the_selector_grants_the_same() {
    for (what, next, wanted) in [
        ("another subject", selected("x", "bob"), &["Role a/p"][..]),
        ("another name", selected("y", "alice"), &["Role a/p"]),
        (
            "another role",
            json!({"roleBindings": [{"namespaceSelector": {}, "name": "x", "subject": user("alice"),
                "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}}]}),
            &[],
        ),
        (
            "other rules",
            json!({"roles": [{"namespaceSelector": {}, "rules": [{"verbs": ["get"]}]}]}),
            &[],
        ),
        (
            "it cannot be built",
            json!({"roleBindings": [{"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
                "name": "x", "roleRef": {"kind": "Role"}, "subject": user("alice")}]}),
            &[],
        ),
    ] {
        let mut world = delivered(named("x", "alice"));
        world.permission = permission(next);
        assert_eq!(by_name(&world), wanted, "{what}");
    }
}

#[test]
fn binding_keeps_its_old_name_while_the_new_one_fails() {
    let entry = |name: &str, who: &str| json!({"roleBindings": [binding("a", name, &user(who))]});
    let mut world = delivered(entry("x", "alice"));
    world.permission = permission(entry("taken", "alice"));
    for _ in 0..3 {
        world.reconcile();
        world.agent(&["taken"]);
        assert_eq!(world.ids(), ["RoleBinding a/taken", "RoleBinding a/x"]);
        assert_eq!(world.condition("Ready").1, "AppliedManifestWorkFailed");
    }
    // What the new one does not grant goes, whatever became of it.
    for (what, next) in [
        ("another subject", entry("taken", "bob")),
        ("nothing", json!({})),
        (
            "it cannot be built",
            json!({"roleBindings": [{"namespace": "a", "name": "taken", "subject": user("alice"), "roleRef": {"kind": "Rule"}}]}),
        ),
    ] {
        let before = world.permission.clone();
        world.permission = permission(next);
        assert!(!world.ids().contains(&"RoleBinding a/x".to_owned()), "{what}");
        world.permission = before;
    }
    // And with the other out of the way it goes as well.
    world.agent(&[]);
    assert_eq!(world.ids(), ["RoleBinding a/taken"]);
}

#[test]
fn selected_binding_keeps_its_old_name_while_the_new_one_fails() {
    let mut world = delivered(selected("x", "alice"));
    assert_eq!(world.ids().len(), 2);
    world.permission = permission(selected("taken", "alice"));
    world.reconcile();
    assert_eq!(world.ids().len(), 3);
    world.agent(&[]);
    expand(&mut world, 1, 2, 1);
    assert_eq!(world.ids().len(), 3, "a namespace where the name is taken");
    expand(&mut world, 1, 2, 2);
    assert_eq!(world.ids().len(), 2);
}
