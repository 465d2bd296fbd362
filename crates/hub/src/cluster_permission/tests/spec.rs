//! What a spec comes to.

use super::*;

#[test]
fn every_field_becomes_an_object() {
    let world = World::new(json!({
        "clusterRole": {"rules": rules()},
        "clusterRoleBinding": {"subject": user("single")},
        "roles": [{"namespace": "a", "rules": rules()}],
        "roleBindings": [binding("a", "named", &user("u")),
            {"namespace": "b", "roleRef": {"kind": "Role"}, "subjects": [user("x"), {"kind": "ServiceAccount", "name": "sa", "namespace": "c"}]}],
    }));
    let plan = world.plan();
    assert_eq!(
        world.ids(),
        [
            "ClusterRole p",
            "ClusterRoleBinding p",
            "Role a/p",
            "RoleBinding a/named",
            "RoleBinding b/p"
        ]
    );
    let work = &plan.works[&1];
    assert_eq!(work.metadata.name.as_deref(), Some("p-abcde"));
    let owner = &work.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("ClusterPermission", Some(true), Some(true))
    );
    let manifests: Vec<&Value> = work.spec.workload.manifests.iter().map(|m| &m.0).collect();
    assert_eq!(
        manifests[1]["roleRef"],
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "p"})
    );
    assert_eq!(manifests[4]["roleRef"]["name"], "p");
    assert_eq!(
        manifests[4]["subjects"][1],
        json!({"kind": "ServiceAccount", "name": "sa", "namespace": "c"})
    );
    assert_eq!(manifests[3]["subjects"][0], user("u"));
    assert_eq!(
        manifests[3]["metadata"]["annotations"]["work.writ.dev/on-conflict"],
        "refuse"
    );
    // What binds a role of the permission says so, what binds another does not.
    let own: Vec<bool> = manifests
        .iter()
        .map(|manifest| manifest["metadata"]["annotations"]["work.writ.dev/bound-role"] == "own")
        .collect();
    // The Role in namespace a is not the one that is bound in b.
    assert_eq!(own, [false, true, false, false, false]);
    assert!(plan.built.problems.is_empty());
}

#[test]
fn list_of_bindings_wins_over_the_single_one() {
    let world = World::new(json!({
        "clusterRoleBinding": {"name": "single", "subject": user("a")},
        "clusterRoleBindings": [{"name": "x", "subject": user("a"), "subjects": [user("b")]}, {"subject": user("c")}],
    }));
    assert_eq!(world.ids(), ["ClusterRoleBinding x", "ClusterRoleBinding p"]);
    assert_eq!(
        world.plan().works[&1].spec.workload.manifests[0].0["subjects"],
        json!([user("b")])
    );
}

#[test]
fn grant_is_named_by_its_selector() {
    let selector = json!({"matchLabels": {"team": "a"}});
    let first = json!({"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subject": user("u")});
    let second =
        json!({"namespaceSelector": {}, "name": "all", "roleRef": {"kind": "Role"}, "subject": user("u")});
    let names = |list: Value| World::new(json!({ "roleBindings": list })).ids();
    let forward = names(json!([first, second]));
    let mut backward = names(json!([second, first]));
    backward.reverse();
    assert_eq!(forward, backward);
    assert!(forward[0].starts_with("NamespaceGrant p-abcde-"), "{forward:?}");
    let world = World::new(json!({"roles": [{"namespaceSelector": {}, "rules": rules()}]}));
    let plan = world.plan();
    let config = &plan.works[&1].spec.manifest_configs[0];
    assert_eq!(config.resource_identifier.resource, "namespacegrants");
    assert_eq!(config.feedback_rules[0].json_paths.len(), 6);
    let spec = &plan.works[&1].spec.workload.manifests[0].0["spec"];
    assert_eq!(
        *spec,
        json!({"namespaceSelector": {}, "name": "p", "rules": rules()})
    );
}

#[test]
fn hub_selects_where_the_agent_cannot() {
    let mut world = World::new(json!({
        "roles": [{"namespaceSelector": {"matchExpressions": [{"key": "t", "operator": "In", "values": ["x"]}]}, "rules": rules()}],
        "roleBindings": [{"namespaceSelector": {"matchLabels": {"none": "1"}}, "roleRef": {"kind": "Role"}, "subject": user("u")}],
    }));
    let labels = |value: &str| BTreeMap::from([("t".to_owned(), value.to_owned())]);
    world.selected_by = SelectedBy::Hub;
    world.hub_namespaces = Some(vec![
        ("n1".into(), labels("x")),
        ("n2".into(), labels("y")),
        ("n3".into(), labels("x")),
    ]);
    assert_eq!(world.ids(), ["Role n1/p", "Role n3/p"]);
    let selections = world.status().namespace_selections;
    assert_eq!(
        (selections[0].selected, selections[0].by.as_str()),
        (Some(2), "hub")
    );
    assert_eq!(
        selections[1].message.as_deref(),
        Some("the selector selects no namespace of the hub")
    );
}

#[test]
fn account_is_granted_while_it_exists() {
    let mut world = World::new(
        json!({"roleBindings": [binding("a", "one", &account("robot")), binding("a", "two", &user("u"))]}),
    );
    assert_eq!(world.ids(), ["RoleBinding a/two"]);
    let (status, reason, message) = world.condition("SubjectPresent");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "SubjectNotFound"));
    assert!(
        message.contains("ManagedServiceAccount cluster1/robot does not exist"),
        "{message}"
    );
    world.accounts.insert("robot".into());
    assert!(
        world
            .condition("SubjectPresent")
            .2
            .contains("ManagedClusterAddOn cluster1/managed-serviceaccount does not exist")
    );
    world.add_on = Some("agents");
    assert_eq!(world.ids(), ["RoleBinding a/one", "RoleBinding a/two"]);
    assert_eq!(world.condition("SubjectPresent").0, "True");
    let plan = world.plan();
    let subjects = &plan.works[&1].spec.workload.manifests[0].0["subjects"];
    assert_eq!(
        *subjects,
        json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "agents"}])
    );
    world.reconcile();
    world.accounts.clear();
    assert_eq!(
        world.ids(),
        ["RoleBinding a/two"],
        "what was granted to a subject that is gone is revoked"
    );
}

#[test]
fn invalid_entry_is_revoked_and_the_rest_delivered() {
    let bad: &[(&str, Value, &str)] = &[
        (
            "both",
            json!({"namespace": "a", "namespaceSelector": {}, "roleRef": {"kind": "Role"}, "subject": user("u")}),
            "cannot populated at the same time",
        ),
        (
            "neither",
            json!({"roleRef": {"kind": "Role"}, "subject": user("u")}),
            "cannot be nil and empty",
        ),
        (
            "kind",
            json!({"namespace": "a", "roleRef": {"kind": "Rule"}, "subject": user("u")}),
            "it can be Role or ClusterRole",
        ),
        (
            "no group",
            json!({"namespace": "a", "roleRef": {"kind": "Role", "name": "x"}, "subject": user("u")}),
            "the RoleBinding for Namespace a missing APIGroup",
        ),
        (
            "no name",
            json!({"namespace": "a", "roleRef": {"kind": "Role", "apiGroup": "rbac.authorization.k8s.io"}, "subject": user("u")}),
            "missing Name",
        ),
        (
            "no subject",
            json!({"namespace": "a", "roleRef": {"kind": "Role"}, "subjects": []}),
            "a binding without subjects grants nothing",
        ),
        (
            "subject kind",
            json!({"namespace": "a", "roleRef": {"kind": "Role"}, "subject": {"kind": "Robot", "name": "x"}}),
            "it can be User, Group",
        ),
        (
            "namespace",
            json!({"namespace": "A_b", "roleRef": {"kind": "Role"}, "subject": user("u")}),
            "lower case letters",
        ),
        (
            "operator",
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}, "roleRef": {"kind": "Role"}, "subject": user("u")}),
            "it can be In, NotIn",
        ),
        (
            "slash",
            json!({"namespace": "a", "name": "a/b", "roleRef": {"kind": "Role"}, "subject": user("u")}),
            "cannot be part of a URL",
        ),
    ];
    for (what, entry, words) in bad {
        let mut world = World::new(
            json!({"roleBindings": [binding("a", "old", &user("u")), binding("b", "kept", &user("u"))]}),
        );
        world.reconcile();
        world.agent(&[]);
        let kept = binding("b", "kept", &user("u"));
        world.permission = permission(json!({"roleBindings": [entry, kept]}));
        assert_eq!(world.ids(), ["RoleBinding b/kept"], "{what}");
        let (status, reason, message) = world.condition("AppliedRBACManifestWork");
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("False", "FailedBuildManifestWork"),
            "{what}"
        );
        assert!(
            message.contains("spec.roleBindings[0]") && message.contains(words),
            "{what}: {message}"
        );
        assert_eq!(world.condition("Ready").0, "False");
    }
}

#[test]
fn second_unnamed_binding_in_a_namespace_is_a_problem() {
    let unnamed =
        |subject: &str| json!({"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user(subject)});
    let world =
        World::new(json!({"roleBindings": [unnamed("x"), binding("b", "rest", &user("u")), unnamed("y")]}));
    assert_eq!(world.ids(), ["RoleBinding a/p", "RoleBinding b/rest"]);
    let (_, _, message) = world.condition("Ready");
    for part in [
        "spec.roleBindings[0]",
        "spec.roleBindings[2].name",
        "give each its own name",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn hub_role_is_delivered_unless_it_is_built_in() {
    let mut world = World::new(json!({"roleRefs": [
        {"kind": "Role", "name": "pod-reader", "namespace": "default"}, {"kind": "ClusterRole", "name": "cluster-admin"},
        {"kind": "ClusterRole", "name": "absent"}]}));
    let id = |kind: &str, namespace: &str, name: &str| object_id(kind, namespace, name);
    let role = |built_in| HubRole {
        rules: serde_json::from_value(rules()).unwrap(),
        built_in,
    };
    world
        .hub_roles
        .insert(id("Role", "default", "pod-reader"), role(false));
    world
        .hub_roles
        .insert(id("ClusterRole", "", "cluster-admin"), role(true));
    assert_eq!(world.ids(), ["Role default/pod-reader"]);
    assert_eq!(
        world.plan().works[&1].spec.workload.manifests[0].0["rules"],
        rules()
    );
    let message = world.condition("Ready").2;
    assert!(
        message.contains("spec.roleRefs[1]: ClusterRole cluster-admin")
            && message.contains("never overwritten"),
        "{message}"
    );
    assert!(
        message.contains("spec.roleRefs[2]: the hub has no ClusterRole absent"),
        "{message}"
    );
}

#[test]
fn built_in_names_are_not_taken() {
    let world = World::new(json!({"clusterRoleBindings": [
        {"name": "cluster-admin", "subject": user("u")}, {"name": "system:basic-user", "subject": user("u")}, {"name": "fine", "subject": user("u")}]}));
    assert_eq!(world.ids(), ["ClusterRoleBinding fine"]);
}

#[test]
fn validate_checks_only_roles_of_others() {
    let mut world = World::new(json!({
        "validate": true,
        "clusterRole": {"rules": rules()},
        "clusterRoleBindings": [{"name": "own", "subject": user("u"), "roleRef": {"kind": "ClusterRole", "name": "p", "apiGroup": "rbac.authorization.k8s.io"}}],
        "roleBindings": [binding("a", "x", &user("u")), binding("b", "y", &user("u")), {"namespace": "a", "name": "z", "roleRef": {"kind": "Role"}, "subject": user("u")}],
    }));
    assert_eq!(world.ids()[5..], ["ClusterRole view", "Role a/p"]);
    assert_eq!(world.condition("ValidateRolesExist").0, "Unknown");
    world.reconcile();
    world.agent(&[]);
    for report in &mut world
        .works
        .get_mut(&1)
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .resource_status
        .manifests
    {
        let missing = report.resource_meta.name == "view";
        let available = json!({"type": "Available", "status": if missing { "False" } else { "True" }, "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        report.conditions.push(serde_json::from_value(available).unwrap());
    }
    assert_eq!(world.condition("ValidateRolesExist").1, "AllRolesFound");
    assert_eq!(
        world.condition("ValidateClusterRolesExist").2,
        "The following cluster roles were not found: view"
    );
    world.permission.spec.validate = None;
    let status = world.status();
    assert!(
        condition::find(&status.conditions, "ValidateRolesExist").is_none(),
        "it disappears when it is switched off"
    );
}

#[test]
fn validate_checks_roles_behind_a_selector() {
    let selector = json!({"matchLabels": {"team": "a"}});
    let entry = json!({"namespaceSelector": selector, "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}, "subject": user("u")});
    let mut world = World::new(json!({"validate": true, "roleBindings": [entry]}));

    // The agent expands the grant, so it is the agent that looks.
    world.reconcile();
    world.agent(&[]);
    let report = |world: &mut World, missing: Option<&str>| {
        let work = world.works.get_mut(&1).unwrap();
        assert_eq!(work.spec.workload.manifests[0].0["spec"]["validate"], json!(true));
        let number = |name: &str| json!({"name": name, "fieldValue": {"type": "Integer", "integer": 1}});
        let mut values = vec![
            number("generation"),
            number("observedGeneration"),
            number("selected"),
            number("ready"),
        ];
        values.extend(
            missing.map(|m| json!({"name": "rolesMissing", "fieldValue": {"type": "String", "string": m}})),
        );
        let status = work.status.as_mut().unwrap();
        status.resource_status.manifests[0].status_feedback =
            serde_json::from_value(json!({"values": values})).unwrap();
    };
    assert_eq!(
        world.condition("ValidateRolesExist").0,
        "Unknown",
        "the agent has not checked yet"
    );
    report(&mut world, Some("n/reader"));
    let (status, reason, message) = world.condition("ValidateRolesExist");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RolesNotFound"));
    assert!(message.ends_with("were not found: n/reader"), "{message}");
    assert_eq!(world.condition("Ready").0, "False");
    report(&mut world, Some(""));
    assert_eq!(world.condition("ValidateRolesExist").0, "True");

    // Where the hub expands it, there is a stub in each namespace.
    world.works.clear();
    world.selected_by = SelectedBy::Hub;
    world.hub_namespaces = Some(vec![
        ("n".into(), [("team".to_owned(), "a".to_owned())].into()),
        ("m".into(), [].into()),
    ]);
    assert_eq!(world.ids(), ["RoleBinding n/p", "Role n/reader"]);
}

#[test]
fn subjects_are_summarized() {
    let world = World::new(
        json!({"clusterRoleBinding": {"subjects": [user("a"), user("b"), user("a"), user("c"), user("d"), user("e")]}}),
    );
    assert_eq!(
        world.status().subjects.as_deref(),
        Some("User a, User b, User c, +2")
    );
}

#[test]
fn adopting_permission_has_no_conflict_guards() {
    let mut world = World::new(
        json!({"clusterRole": {"rules": rules()}, "roles": [{"namespaceSelector": {}, "rules": rules()}]}),
    );
    world.permission.metadata.annotations = Some(BTreeMap::from([("writ.dev/adopt".into(), "true".into())]));
    let plan = world.plan();
    let manifests = &plan.works[&1].spec.workload.manifests;
    assert!(manifests[0].0["metadata"].get("annotations").is_none());
    assert_eq!(manifests[1].0["spec"]["adopt"], true);
}
