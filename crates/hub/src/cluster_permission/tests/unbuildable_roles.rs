//! Which role is the permission's own, and what becomes of a binding whose role cannot be made.

use writ_api::writ::{BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN};

use super::*;

fn role_ref(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

/// The bindings in the works, and whether each says that the role is the permission's own.
fn bindings(world: &World) -> BTreeMap<String, bool> {
    let works = world.plan().works;
    let manifests = works.values().flat_map(|work| &work.spec.workload.manifests);
    let bindings = manifests.filter(|m| m.0.get("rules").is_none() && m.0.pointer("/spec/rules").is_none());
    bindings
        .map(|m| {
            let said = &m.0["metadata"]["annotations"][BOUND_ROLE_ANNOTATION];
            let id = manifest::id(&m.0);
            let name = if &*id.kind == "NamespaceGrant" {
                "selected".into()
            } else {
                id.to_string()
            };
            (name, said == BOUND_ROLE_OWN)
        })
        .collect()
}

fn hub_role(world: &mut World, kind: &str, namespace: &str, name: &str, built_in: bool) {
    let id = object_id(kind, namespace, name);
    let rules = serde_json::from_value(rules()).unwrap();
    world.hub_roles.insert(id, HubRole { rules, built_in });
}

#[test]
fn role_is_own_only_where_the_permission_makes_it() {
    let here = |role: Value| json!({"namespace": "b", "name": "x", "subject": user("u"), "roleRef": role});
    let selected =
        |role: Value| json!({"namespaceSelector": {}, "name": "x", "subject": user("u"), "roleRef": role});
    let own = || role_ref("Role", "p");
    let role_in = |namespace: &str| json!({"roles": [{"namespace": namespace, "rules": rules()}]});
    let role_anywhere = || json!({"roles": [{"namespaceSelector": {}, "rules": rules()}]});
    let reference =
        |namespace: &str| json!({"roleRefs": [{"kind": "Role", "name": "reader", "namespace": namespace}]});
    let wide = |name: &str| json!({"roleRefs": [{"kind": "ClusterRole", "name": name}]});
    for (what, spec, binding, wanted) in [
        ("the same namespace", role_in("b"), here(own()), true),
        ("another namespace", role_in("a"), here(own()), false),
        ("the role is selected", role_anywhere(), here(own()), true),
        ("the binding is selected", role_in("a"), selected(own()), true),
        ("both are selected", role_anywhere(), selected(own()), true),
        (
            "a reference there",
            reference("b"),
            here(role_ref("Role", "reader")),
            true,
        ),
        (
            "a reference elsewhere",
            reference("a"),
            here(role_ref("Role", "reader")),
            false,
        ),
        (
            "a reference and a selector",
            reference("a"),
            selected(role_ref("Role", "reader")),
            true,
        ),
        (
            "a reference to a ClusterRole",
            wide("reader"),
            here(role_ref("ClusterRole", "reader")),
            true,
        ),
        (
            "a reference to one that every cluster has",
            wide("view"),
            here(role_ref("ClusterRole", "view")),
            false,
        ),
        (
            "a reference to one that the hub says Kubernetes brings",
            wide("marked"),
            here(role_ref("ClusterRole", "marked")),
            false,
        ),
        (
            "its own ClusterRole",
            json!({"clusterRole": {"rules": rules()}}),
            here(role_ref("ClusterRole", "p")),
            true,
        ),
    ] {
        let mut spec = spec;
        spec["roleBindings"] = json!([binding]);
        let mut world = World::new(spec);
        for namespace in ["a", "b"] {
            hub_role(&mut world, "Role", namespace, "reader", false);
        }
        for (name, built_in) in [("reader", false), ("view", true), ("marked", true)] {
            hub_role(&mut world, "ClusterRole", "", name, built_in);
        }
        let found: Vec<bool> = bindings(&world).into_values().collect();
        assert_eq!(found, [wanted], "{what}");
    }
}

#[test]
fn reference_to_a_built_in_role_says_what_to_do() {
    for (name, built_in) in [("view", true), ("view", false), ("cluster-admin", true)] {
        let mut world = World::new(json!({"roleRefs": [{"kind": "ClusterRole", "name": name}],
            "roleBindings": [binding("a", "x", &user("u"))]}));
        // Without the label of built-in roles it is still known by its name.
        hub_role(&mut world, "ClusterRole", "", name, built_in);
        assert_eq!(world.ids(), ["RoleBinding a/x"], "the binding is delivered");
        let (_, reason, message) = world.condition("Ready");
        assert_eq!(reason, "FailedBuildManifestWork");
        for words in [
            format!("spec.roleRefs[0]: ClusterRole {name} is built into Kubernetes"),
            "remove the reference".into(),
        ] {
            assert!(message.contains(&words), "{message}");
        }
        for nonsense in ["choose another name", "writ.dev/adopt"] {
            assert!(!message.contains(nonsense), "{message}");
        }
    }
}

#[test]
fn binding_without_role_name_is_withheld_if_its_role_is_unbuildable() {
    let large = json!([{"verbs": (0..200).map(|i| format!("v{i}")).collect::<Vec<_>>()}]);
    let reader = "extension-apiserver-authentication-reader";
    let wide = |role: Option<Value>| {
        let mut binding = json!({"name": "wide", "subject": user("eve")});
        if let Some(role) = role {
            binding["roleRef"] = role;
        }
        json!([binding])
    };
    let here = |namespace: &str, role: Value| json!({"namespace": namespace, "name": "here", "subject": user("eve"), "roleRef": role});
    let selected = |role: Value| json!({"namespaceSelector": {}, "name": "here", "subject": user("eve"), "roleRef": role});
    let kept = binding("z", "rest", &user("u"));
    let rest = "RoleBinding z/rest";
    for (what, name, spec, wanted, told) in [
        (
            "Kubernetes brings it",
            "admin",
            json!({"clusterRole": {"rules": rules()}, "clusterRoleBindings": wide(None),
                "roleBindings": [here("a", json!({"kind": "ClusterRole"})), kept]}),
            vec![rest],
            vec![
                "spec.clusterRoleBindings[0]: ClusterRoleBinding wide is not delivered: spec.clusterRole cannot make its role ClusterRole admin",
                "spec.roleBindings[0]: RoleBinding a/here is not delivered: spec.clusterRole cannot make its role ClusterRole admin",
            ],
        ),
        (
            "Kubernetes brings it, and the author names it",
            "admin",
            json!({"clusterRole": {"rules": rules()}, "clusterRoleBindings": wide(Some(role_ref("ClusterRole", "admin"))),
                "roleBindings": [here("a", role_ref("ClusterRole", "admin")), kept]}),
            vec!["ClusterRoleBinding wide", "RoleBinding a/here", rest],
            vec!["spec.clusterRole: ClusterRole admin is built into Kubernetes"],
        ),
        (
            "it is too large",
            "p",
            json!({"clusterRole": {"rules": large}, "clusterRoleBindings": wide(None),
                "roleBindings": [here("a", json!({"kind": "ClusterRole"})), kept]}),
            vec![rest],
            vec![
                "spec.clusterRole: ClusterRole p has ",
                "spec.clusterRoleBindings[0]: ClusterRoleBinding wide is not delivered: spec.clusterRole cannot make its role ClusterRole p",
            ],
        ),
        (
            "a Role in its namespace is too large",
            "p",
            json!({"roles": [{"namespace": "a", "rules": large}, {"namespace": "b", "rules": rules()}],
                "roleBindings": [here("a", json!({"kind": "Role"})), here("b", json!({"kind": "Role"})), kept]}),
            vec!["Role b/p", "RoleBinding b/here", rest],
            vec![
                "spec.roleBindings[0]: RoleBinding a/here is not delivered: spec.roles[0] cannot make its role Role a/p",
            ],
        ),
        (
            "a selected Role is too large, and a named one is not",
            "p",
            json!({"roles": [{"namespaceSelector": {}, "rules": large}, {"namespace": "b", "rules": rules()}],
                "roleBindings": [here("a", json!({"kind": "Role"})), here("b", json!({"kind": "Role"})), kept]}),
            vec!["Role b/p", "RoleBinding b/here", rest],
            vec![
                "spec.roleBindings[0]: RoleBinding a/here is not delivered: spec.roles[0] cannot make its role Role p",
            ],
        ),
        (
            "a selected Role is built into Kubernetes",
            reader,
            json!({"roles": [{"namespaceSelector": {}, "rules": rules()}],
                "roleBindings": [here("kube-system", json!({"kind": "Role"})), selected(json!({"kind": "Role"})), kept]}),
            vec![rest],
            vec![
                "spec.roleBindings[0]: RoleBinding kube-system/here is not delivered: spec.roles[0] cannot make its role Role extension-",
                "spec.roleBindings[1]: RoleBinding here is not delivered: spec.roles[0] cannot make its role Role extension-",
            ],
        ),
        (
            "its namespace is unknown",
            "p",
            json!({"roles": [{"rules": rules()}], "roleBindings": [here("a", json!({"kind": "Role"})), kept]}),
            vec![rest],
            vec![
                "spec.roleBindings[0]: RoleBinding a/here is not delivered: spec.roles[0] cannot make its role Role p",
            ],
        ),
        (
            "the hub does not have it",
            "p",
            json!({"roleRefs": [{"kind": "ClusterRole", "name": "p"}], "clusterRoleBindings": wide(None), "roleBindings": [kept]}),
            vec![rest],
            vec![
                "spec.clusterRoleBindings[0]: ClusterRoleBinding wide is not delivered: spec.roleRefs[0] cannot make its role ClusterRole p",
            ],
        ),
        (
            "another entry makes it",
            "p",
            json!({"clusterRole": {"rules": rules()}, "roleRefs": [{"kind": "ClusterRole", "name": "p"}],
                "clusterRoleBindings": wide(None), "roleBindings": [kept]}),
            vec!["ClusterRole p", "ClusterRoleBinding wide", rest],
            vec![],
        ),
    ] {
        let mut world = World::new(spec);
        world.permission.metadata.name = Some(name.into());
        world.limits.bytes = 1000;
        // What was delivered before is no reason to keep it.
        let before = world.ids();
        world.reconcile();
        world.agent(&[]);
        assert_eq!(before, wanted, "{what}");
        assert_eq!(world.ids(), wanted, "{what}");
        let message = world.condition("AppliedRBACManifestWork").2;
        for words in told {
            assert!(message.contains(words), "{what}: {message}");
        }
    }
}

#[test]
fn binding_is_withheld_when_its_role_grows_too_large() {
    let spec = |verbs: usize| {
        json!({"clusterRole": {"rules": [{"verbs": (0..verbs).map(|i| format!("v{i}")).collect::<Vec<_>>()}]},
            "clusterRoleBinding": {"name": "x", "subject": user("eve")}, "validate": true,
            "roleBindings": [binding("z", "rest", &user("u"))]})
    };
    let mut world = World::new(spec(3));
    world.limits.bytes = 1000;
    world.reconcile();
    world.agent(&[]);
    assert!(world.ids().contains(&"ClusterRoleBinding x".to_owned()));
    // Renamed in the same change: the old one does not stay either.
    world.permission = permission(spec(300));
    world.permission.spec.cluster_role_binding.as_mut().unwrap().name = Some("y".into());
    assert_eq!(world.ids(), ["RoleBinding z/rest", "ClusterRole view"]);
}
