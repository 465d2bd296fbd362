//! Revocations that must not wait, access that must not be lost on the way, and words that must be true.

use super::*;

fn role(namespace: &str, verbs: usize) -> Value {
    json!({"namespace": namespace, "rules": [{"verbs": (0..verbs).map(|i| format!("v{i}")).collect::<Vec<_>>()}]})
}

#[test]
fn revocation_does_not_wait_for_a_moving_object() {
    let people = |names: &[&str]| {
        let subjects: Vec<Value> = names.iter().map(|name| user(name)).collect();
        json!({"namespace": "z", "name": "people", "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}})
    };
    let spec = |verbs: usize, names: &[&str]| json!({"roles": [role("a", verbs), role("b", 30)], "roleBindings": [people(names)]});
    let mut world = World::new(spec(30, &["alice", "bob"]));
    world.limits.bytes = 1300;
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.works.len(), 1);
    // `a` grows, so that `b` has to move; in the same change bob goes and carol comes.
    world.permission = permission(spec(80, &["alice", "carol", "dave"]));
    world.reconcile();
    assert_eq!(world.works.len(), 2, "one moves");
    let manifests = &world.works[&1].spec.workload.manifests;
    let people = manifests.iter().find(|m| m.0["kind"] == "RoleBinding").unwrap();
    assert_eq!(
        people.0["subjects"],
        json!([user("alice")]),
        "bob is revoked, the new subjects wait"
    );
    let held = manifests
        .iter()
        .find(|m| m.0["metadata"]["namespace"] == "a")
        .unwrap();
    assert_eq!(
        held.0["rules"][0]["verbs"].as_array().unwrap().len(),
        30,
        "the old rules stay"
    );
    for _ in 0..3 {
        world.agent(&[]);
        world.reconcile();
    }
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
    let all = world.works.values().flat_map(|w| &w.spec.workload.manifests);
    let people = all.into_iter().find(|m| m.0["kind"] == "RoleBinding").unwrap();
    assert_eq!(people.0["subjects"].as_array().unwrap().len(), 3);
}

#[test]
fn work_being_deleted_is_pending() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
    let going = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    world.works.get_mut(&1).unwrap().metadata.deletion_timestamp = Some(going);
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Pending"));
    assert!(message.contains("the work is being deleted"), "{message}");
}

/// A hub with one namespace that the selector selects, and one that it does not.
fn selecting() -> World {
    let selector = json!({"matchLabels": {"team": "a"}});
    let mut world = World::new(json!({
        "roles": [{"namespaceSelector": selector, "rules": rules()}],
        "roleBindings": [{"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subject": user("u")}],
    }));
    let labels = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    world.hub_namespaces = Some(vec![("one".into(), labels("a")), ("two".into(), labels("b"))]);
    world.selected_by = SelectedBy::Hub;
    world
}

/// What an agent says of its grants.
fn expand(world: &mut World, generation: i64) {
    for work in world.works.values_mut() {
        let reports = &mut work.status.as_mut().unwrap().resource_status.manifests;
        for report in reports
            .iter_mut()
            .filter(|r| r.resource_meta.kind == "NamespaceGrant")
        {
            let value =
                |name: &str, n: i64| json!({"name": name, "fieldValue": {"type": "Integer", "integer": n}});
            let feedback = json!({"values": [value("generation", 1), value("observedGeneration", generation), value("selected", 1), value("ready", 1)]});
            report.status_feedback = serde_json::from_value(feedback).unwrap();
        }
    }
}

#[test]
fn change_of_selecting_mode_leaves_no_gap() {
    let hub = ["Role one/p", "RoleBinding one/p"];
    let mut world = selecting();
    world.reconcile();
    assert_eq!(world.ids(), hub);
    world.agent(&[]);
    world.reconcile();
    // The agent can: its grants come first, what the hub selected goes when they are in force.
    world.selected_by = SelectedBy::Agent;
    let grants: Vec<String> = world
        .ids()
        .into_iter()
        .filter(|id| id.starts_with("NamespaceGrant"))
        .collect();
    assert_eq!(grants.len(), 2);
    world.reconcile();
    assert_eq!(world.ids(), [&grants[..], &hub.map(String::from)].concat());
    world.agent(&[]);
    expand(&mut world, 0);
    assert_eq!(world.ids().len(), 4, "applied and not expanded");
    expand(&mut world, 1);
    assert_eq!(world.ids(), grants);
    world.reconcile();
    world.agent(&[]);
    expand(&mut world, 1);
    assert_eq!(world.condition("Ready").1, "Granted");
    // And back. What could not be applied is no reason to keep the grants.
    world.selected_by = SelectedBy::Hub;
    world.reconcile();
    assert_eq!(world.ids(), [&hub.map(String::from), &grants[..]].concat());
    world.agent(&["p"]);
    assert_eq!(world.ids(), hub);
}

#[test]
fn namespaces_selected_by_ocm_stay_until_the_agent_took_over() {
    let mut world = selecting();
    world.reconcile();
    world.agent(&[]);
    for manifest in &mut world.works.get_mut(&1).unwrap().spec.workload.manifests {
        let metadata = manifest.0["metadata"].as_object_mut().unwrap();
        metadata.remove("annotations");
        metadata.insert("creationTimestamp".into(), Value::Null);
    }
    world.selected_by = SelectedBy::Agent;
    assert_eq!(world.ids().len(), 4, "{:?}", world.ids());
    world.reconcile();
    world.agent(&[]);
    expand(&mut world, 1);
    assert_eq!(world.ids().len(), 2, "{:?}", world.ids());
}

#[test]
fn revoked_binding_does_not_linger_on_change_of_mode() {
    let mut world = selecting();
    world.reconcile();
    world.agent(&[]);
    world.selected_by = SelectedBy::Agent;
    world.permission.spec.role_bindings[0].subject = serde_json::from_value(user("other")).unwrap();
    world.permission.spec.roles.clear();
    let ids = world.ids();
    assert!(ids.len() == 1 && ids[0].starts_with("NamespaceGrant"), "{ids:?}");
}

#[test]
fn selector_that_selects_nothing_on_the_hub_is_ready() {
    let mut world = selecting();
    world.hub_namespaces = Some(Vec::new());
    world.reconcile();
    assert!(world.works.is_empty());
    for (type_, reason) in [
        ("RBACManifestWorkCreated", "NothingSelected"),
        ("AppliedRBACManifestWork", "NothingSelected"),
        ("Ready", "Granted"),
    ] {
        let (status, why, message) = world.condition(type_);
        assert_eq!((status.as_str(), why.as_str()), ("True", reason));
        assert!(message.contains("select no namespace of the hub"), "{message}");
    }
}

#[test]
fn unread_references_keep_what_is_granted() {
    let mixed = |subjects: &[Value]| {
        json!({"namespace": "a", "name": "mixed", "subjects": subjects,
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}})
    };
    let spec = |subjects: &[Value], more: bool| {
        let mut bindings = vec![mixed(subjects)];
        bindings.extend(more.then(|| binding("a", "gone", &user("u"))));
        json!({"roleBindings": bindings, "roleRefs": [{"kind": "ClusterRole", "name": "reader"}]})
    };
    let id = object_id("ClusterRole", "", "reader");
    let mut world = World::new(spec(&[user("a"), user("b"), account("robot")], true));
    world.accounts.insert("robot".into());
    world.add_on = Some("agents");
    let reader = HubRole {
        rules: serde_json::from_value(rules()).unwrap(),
        built_in: false,
    };
    world.hub_roles.insert(id, reader);
    world.reconcile();
    world.agent(&[]);
    // The process starts again and cannot read accounts and roles. Meanwhile b and a binding were removed.
    world.permission = permission(spec(&[user("a"), account("robot"), account("new")], false));
    world.accounts.clear();
    world.add_on = None;
    world.hub_roles.clear();
    world.not_synced = NotSynced {
        accounts: true,
        roles: true,
        namespaces: false,
    };
    assert_eq!(world.ids(), ["RoleBinding a/mixed", "ClusterRole reader"]);
    let plan = world.plan();
    let manifests = &plan.works[&1].spec.workload.manifests;
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "agents"});
    assert_eq!(manifests[0].0["subjects"], json!([user("a"), robot]));
    assert_eq!(manifests[1].0["rules"], rules());
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotReadYet"));
    for kind in ["ManagedServiceAccounts", "ClusterRoles"] {
        assert!(message.contains(kind), "{message}");
    }
    assert_eq!(world.condition("SubjectPresent").0, "Unknown");
    // Read, and absent: that revokes.
    world.not_synced = NotSynced::default();
    let subjects = world.plan().works[&1].spec.workload.manifests[0].0["subjects"].clone();
    assert_eq!(subjects, json!([user("a")]));

    let mut world = selecting();
    world.reconcile();
    world.hub_namespaces = None;
    world.not_synced.namespaces = true;
    assert_eq!(world.ids(), ["Role one/p", "RoleBinding one/p"]);
    assert!(world.condition("Ready").2.contains("Namespaces"));
}

#[test]
fn built_in_name_behind_a_selector_is_refused() {
    let entry = json!({"namespaceSelector": {}, "name": "system:controller:x", "roleRef": {"kind": "Role"}, "subject": user("u")});
    let world = World::new(json!({ "roleBindings": [entry] }));
    assert!(world.ids().is_empty());
    let (_, _, message) = world.condition("Ready");
    assert!(
        message.contains("RoleBinding system:controller:x is built into Kubernetes"),
        "{message}"
    );
}

#[test]
fn foreign_controller_reference_is_removed() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    world.reconcile();
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "thief", "uid": "t", "controller": true},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "friend", "uid": "f"}]);
    world.works.get_mut(&1).unwrap().metadata.owner_references = serde_json::from_value(owners).unwrap();
    let plan = world.plan();
    let owners = plan.works[&1].metadata.owner_references.as_ref().unwrap();
    let names: Vec<(&str, Option<bool>)> = owners.iter().map(|o| (o.name.as_str(), o.controller)).collect();
    assert_eq!(names, [("friend", None), ("p", Some(true))]);
}

#[test]
fn pending_time_is_not_that_of_an_earlier_problem() {
    let spec = json!({"roleBindings": [binding("a", "x", &user("u")), binding("a", "y", &account("robot"))]});
    let mut world = World::new(spec);
    world.reconcile();
    world.agent(&[]);
    world.reconcile();
    assert_eq!(world.condition("Ready").1, "SubjectNotFound");
    // Not ready for another reason, and from now on because the agent has to act.
    world.now += 500;
    world.accounts.insert("robot".into());
    world.add_on = Some("agents");
    world.reconcile();
    let first = world.condition("Ready").2;
    assert!(first.contains("pending since 2027-01-15T08:08:20Z"), "{first}");
    let written = world.permission.status.clone().unwrap().conditions;
    world.now += 500;
    world.reconcile();
    assert_eq!(
        world.permission.status.unwrap().conditions,
        written,
        "written once"
    );
}

#[test]
fn resource_status_is_bounded_in_bytes() {
    let bindings: Vec<Value> = (0..900)
        .map(|i| binding("a", &format!("b{i}"), &user("u")))
        .collect();
    let mut world = World::new(json!({ "roleBindings": bindings }));
    world.reconcile();
    world.agent(&["b5"]);
    let status = world.status().resource_status.unwrap();
    assert_eq!(status.role_bindings[0].name, "b5");
    assert_eq!(status.role_bindings[0].condition[0].observed_generation, Some(1));
    for work in world.works.values_mut() {
        for report in &mut work.status.as_mut().unwrap().resource_status.manifests {
            report.conditions[0].status = "False".into();
            report.conditions[0].message = "x".repeat(2000);
        }
    }
    let status = world.status().resource_status.unwrap();
    let size = serde_json::to_string(&status).unwrap().len();
    assert!(size < 400 * 1024, "{size}");
    let shown = i64::try_from(status.role_bindings.len()).unwrap();
    assert_eq!(status.omitted, Some(900 - shown));
}

#[test]
fn role_removed_from_the_spec_is_deleted_before_its_stub() {
    let own = json!({"kind": "ClusterRole", "name": "p", "apiGroup": "rbac.authorization.k8s.io"});
    let reader = json!({"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"});
    let bindings = json!([{"name": "own", "subject": user("u"), "roleRef": own},
        {"name": "reader", "subject": user("u"), "roleRef": reader}]);
    let in_namespace = json!([{"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user("u")}]);
    let mut world = World::new(json!({
        "validate": true, "clusterRoleBindings": bindings, "roleBindings": in_namespace,
        "clusterRole": {"rules": rules()}, "roles": [{"namespace": "a", "rules": rules()}],
        "roleRefs": [{"kind": "ClusterRole", "name": "reader"}],
    }));
    let id = object_id("ClusterRole", "", "reader");
    let role = HubRole {
        rules: serde_json::from_value(rules()).unwrap(),
        built_in: false,
    };
    world.hub_roles.insert(id, role);
    world.reconcile();
    world.agent(&[]);
    let roles = ["ClusterRole p", "ClusterRole reader", "Role a/p"];
    let named = |world: &World| {
        world
            .ids()
            .iter()
            .filter(|id| roles.contains(&id.as_str()))
            .count()
    };
    assert_eq!(named(&world), 3);

    // Out of the spec, and gone from the hub: the work names none of them until the agent has removed them.
    world.permission.spec.cluster_role = None;
    world.permission.spec.roles.clear();
    world.hub_roles.clear();
    for _ in 0..2 {
        world.reconcile();
        assert_eq!(named(&world), 0, "{:?}", world.ids());
        assert_eq!(world.condition("ValidateRolesExist").1, "NotCheckedYet");
        assert_eq!(world.condition("ValidateClusterRolesExist").1, "NotCheckedYet");
    }
    world.agent(&[]);
    world.reconcile();
    assert_eq!(named(&world), 3, "now it is looked for them");
    let manifests = &world.works[&1].spec.workload.manifests;
    assert!(manifests.iter().all(|m| m.0.get("rules").is_none()));
    world.agent(&[]);
    world.reconcile();
    assert_eq!(named(&world), 3, "and the stubs stay");
}

#[test]
fn bad_entry_does_not_hide_failures_of_the_agent() {
    let bad = json!({"namespace": "a", "roleRef": {"kind": "Rule"}, "subject": user("u")});
    let mut world = World::new(json!({"roleBindings": [bad, binding("a", "taken", &user("u"))]}));
    world.reconcile();
    assert!(!world.condition("Ready").2.contains("taken"));
    world.agent(&["taken"]);
    for type_ in ["AppliedRBACManifestWork", "Ready"] {
        let (_, reason, message) = world.condition(type_);
        assert_eq!(reason, "FailedBuildManifestWork");
        for words in ["spec.roleBindings[0]", "RoleBinding a/taken: no such thing"] {
            assert!(message.contains(words), "{message}");
        }
    }
}

#[test]
fn namespace_selections_are_bounded_and_failing_entries_come_first() {
    let roles: Vec<Value> = (0..1500)
        .map(|i| json!({"namespaceSelector": {"matchLabels": {"n": i.to_string()}}, "rules": rules()}))
        .collect();
    let mut world = World::new(json!({ "roles": roles }));
    world.reconcile();
    world.agent(&[]);
    let words = "x".repeat(700);
    for work in world.works.values_mut() {
        for report in &mut work.status.as_mut().unwrap().resource_status.manifests {
            let number =
                |name: &str, n: i64| json!({"name": name, "fieldValue": {"type": "Integer", "integer": n}});
            let summary = json!({"name": "summary", "fieldValue": {"type": "String", "string": words}});
            let values = json!([
                number("generation", 1),
                number("observedGeneration", 1),
                number("selected", 2),
                number("ready", 1),
                summary
            ]);
            report.status_feedback = serde_json::from_value(json!({ "values": values })).unwrap();
        }
    }
    let selections = world.status().namespace_selections;
    assert_eq!(selections.len(), 1500, "each is counted");
    assert!(
        selections
            .iter()
            .all(|s| (s.selected, s.ready) == (Some(2), Some(1)))
    );
    assert_eq!(selections[0].message.as_deref(), Some(words.as_str()));
    let size = serde_json::to_string(&selections).unwrap().len();
    assert!(size < 300 * 1024, "{size}");
}
