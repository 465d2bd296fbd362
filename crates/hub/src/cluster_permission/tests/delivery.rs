//! Works, reports, moves: what happens over time.

use writ_api::work::{Executor, PRUNED_CONDITION, PRUNED_REASON};

use super::*;

#[test]
fn removing_the_last_binding_deletes_the_work() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "one", &user("u"))]}));
    world.reconcile();
    world.permission.spec.role_bindings.clear();
    let plan = world.plan();
    assert!(plan.works.is_empty());
    assert_eq!(plan.delete, [1]);
    let (status, reason, message) = world.condition("Validation");
    assert_eq!(
        (status.as_str(), reason.as_str(), message.as_str()),
        (
            "False",
            "FailedValidationNoBindingsDefined",
            "no bindings defined"
        )
    );
    assert_eq!(world.condition("Ready").0, "False");
}

#[test]
fn unpruned_objects_are_reported() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
    let left = json!({"type": PRUNED_CONDITION, "status": "False", "reason": PRUNED_REASON,
        "message": "still there: rolebindings b/y", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let work = world.works.get_mut(&1).unwrap();
    let conditions = &mut work.status.as_mut().unwrap().conditions;
    conditions.push(serde_json::from_value(left).unwrap());
    // An agent that does not know the condition would not reset it.
    assert_eq!(world.condition("Ready").1, "Granted");
    let claims = json!([{"name": "agent.writ.dev", "value": "grants,work"}]);
    let status = world.cluster.as_mut().unwrap().status.as_mut().unwrap();
    status.cluster_claims = serde_json::from_value(claims).unwrap();
    let (status, reason, message) = world.condition("Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RevocationPending"));
    assert!(message.contains("rolebindings b/y"), "{message}");
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
    // A whole work that has to go, and is still there.
    let second = world.works[&1].clone();
    world.works.insert(2, second);
    assert_eq!(world.condition("Ready").1, "RevocationPending");
    world.works.remove(&2);
    assert_eq!(world.condition("Ready").1, "Granted");
}

#[test]
fn permission_is_not_ready_before_the_agent_applied_it() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    world.reconcile();
    let (status, reason, message) = world.condition("AppliedRBACManifestWork");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ApplyRBACManifestWorkNotComplete")
    );
    assert!(
        message.contains("kubectl -n cluster1 get ManifestWork p-abcde -o yaml"),
        "{message}"
    );
    world.agent(&[]);
    assert_eq!(
        world.condition("AppliedRBACManifestWork").1,
        "AppliedManifestWorkComplete"
    );
    assert_eq!(world.condition("Ready").1, "Granted");
    world.reconcile();
    // A new entry: the report is about the old content now.
    world.permission = ClusterPermission {
        status: world.permission.status.clone(),
        ..permission(json!({"roleBindings": [binding("a", "x", &user("u")), binding("b", "y", &user("u"))]}))
    };
    assert_eq!(world.condition("AppliedRBACManifestWork").0, "False");
    world.reconcile();
    assert_eq!(world.condition("Ready").1, "Pending");
    let objects = world.status().resource_status.unwrap();
    assert_eq!(objects.role_bindings[0].condition[0].status, "Unknown");
    world.agent(&["y"]);
    let (_, reason, message) = world.condition("AppliedRBACManifestWork");
    assert_eq!(reason, "AppliedManifestWorkFailed");
    assert!(message.contains("RoleBinding b/y: no such thing"), "{message}");
    let objects = world.status().resource_status.unwrap();
    let failing = objects.role_bindings.iter().find(|o| o.name == "y").unwrap();
    assert_eq!(failing.condition[0].reason, "FailedApplyManifest");
}

#[test]
fn object_is_not_applied_while_its_work_has_other_content() {
    let mut world = World::new(
        json!({"roleBindings": [binding("a", "x", &user("alice")), binding("a", "same", &user("u"))]}),
    );
    world.reconcile();
    world.agent(&[]);
    let said = |world: &World| -> BTreeMap<String, (String, String)> {
        let objects = world.status().resource_status.unwrap().role_bindings;
        let said = objects.into_iter().map(|o| {
            let condition = &o.condition[0];
            assert_eq!(
                condition.observed_generation,
                world.permission.metadata.generation
            );
            (o.name, (condition.status.clone(), condition.reason.clone()))
        });
        said.collect()
    };
    let pending = ("Unknown".to_owned(), "ApplyPending".to_owned());
    let done = ("True".to_owned(), "AppliedManifestComplete".to_owned());
    // The hub could not write the work: another subject is wanted, and the agent speaks of the one before.
    world.permission = permission(
        json!({"roleBindings": [binding("a", "x", &user("bob")), binding("a", "same", &user("u"))]}),
    );
    world.permission.metadata.generation = Some(2);
    let now = said(&world);
    assert_eq!(now["x"], pending);
    assert_eq!(now["same"], done, "what is as it was wanted is there");
    world.reconcile();
    assert_eq!(
        said(&world)["x"],
        pending,
        "it is written, and the agent has not answered"
    );
    world.agent(&[]);
    assert_eq!(said(&world)["x"], done);

    // The agent says nothing of the work as it is now.
    let work = world.works.get_mut(&1).unwrap();
    work.status.as_mut().unwrap().conditions.clear();
    assert_eq!(said(&world)["same"], pending);
    world.agent(&[]);
    let work = world.works.get_mut(&1).unwrap();
    work.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(said(&world)["same"], pending, "it goes");
}

#[test]
fn pending_time_does_not_move() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    world
        .cluster
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .conditions[0]
        .status = "Unknown".into();
    world.reconcile();
    let first = world.permission.status.clone();
    world.now += 500;
    world.reconcile();
    let second = world.permission.status.clone();
    world.now += 500;
    world.reconcile();
    assert!(
        world
            .condition("Ready")
            .2
            .contains("pending since 2027-01-15T08:00:00Z"),
        "{}",
        world.condition("Ready").2
    );
    assert!(
        world
            .condition("Ready")
            .2
            .contains("the cluster is not available")
    );
    assert_eq!(
        first.unwrap().conditions[0].last_transition_time,
        second.clone().unwrap().conditions[0].last_transition_time
    );
    assert_eq!(
        second, world.permission.status,
        "a status that does not change is not written"
    );
}

#[test]
fn missing_cluster_gets_no_new_work() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    let cluster = world.cluster.take();
    assert!(world.plan().works.is_empty());
    assert_eq!(
        world.condition("Validation").1,
        "FailedValidationNotInManagedClusterNamespace"
    );
    world.cluster = cluster;
    world.reconcile();
    world.cluster = None;
    world.permission.spec.role_bindings[0].subject = serde_json::from_value(user("other")).unwrap();
    assert_eq!(
        world.plan().works.len(),
        1,
        "what is there still follows the spec"
    );
    world.permission.spec.role_bindings.clear();
    assert_eq!(world.plan().delete, [1]);
}

#[test]
fn grant_failing_in_a_namespace_is_not_ready() {
    let mut world = World::new(json!({"roles": [{"namespaceSelector": {}, "rules": rules()}]}));
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Pending");
    let mut feed = |ready: i64, selected: i64| {
        let value =
            |name: &str, n: i64| json!({"name": name, "fieldValue": {"type": "Integer", "integer": n}});
        let summary = json!({"name": "summary", "fieldValue": {"type": "String", "string": if ready < selected { "ns-1: taken" } else { "" }}});
        let feedback = json!({"values": [value("generation", 1), value("observedGeneration", 1), value("selected", selected), value("ready", ready), summary]});
        let work = world.works.get_mut(&1).unwrap().status.as_mut().unwrap();
        work.resource_status.manifests[0].status_feedback = serde_json::from_value(feedback).unwrap();
        (world.condition("Ready"), world.status().namespace_selections)
    };
    let ((_, reason, message), _) = feed(1, 2);
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("NamespacesFailing", "spec.roles[0]: ns-1: taken")
    );
    let ((_, reason, _), selections) = feed(0, 0);
    assert_eq!(reason, "Granted");
    assert_eq!(
        selections[0].message.as_deref(),
        Some("the selector selects no namespace of the managed cluster")
    );
    assert_eq!(feed(2, 2).0.1, "Granted");
}

#[test]
fn large_permission_is_split_and_objects_keep_their_work() {
    let bindings = |n: usize| {
        (0..n)
            .map(|i| binding("a", &format!("b{i}"), &user("u")))
            .collect::<Vec<_>>()
    };
    let mut world = World::new(json!({ "roleBindings": bindings(7) }));
    world.limits.manifests = 3;
    world.reconcile();
    let sizes = |world: &World| {
        world
            .works
            .values()
            .map(|w| w.spec.workload.manifests.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(&world), [3, 3, 1]);
    assert_eq!(world.works[&2].metadata.name.as_deref(), Some("p-abcde-2"));
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
    let second = ids(&world.works[&2]);
    // The first entry goes: nothing else moves.
    let list = bindings(7).split_off(1);
    world.permission = permission(json!({ "roleBindings": list }));
    world.reconcile();
    assert_eq!(sizes(&world), [2, 3, 1]);
    assert_eq!(ids(&world.works[&2]), second);
    // A new one takes the free place.
    let mut list = list;
    list.push(binding("a", "new", &user("u")));
    world.permission = permission(json!({ "roleBindings": list }));
    world.reconcile();
    assert_eq!(sizes(&world), [3, 3, 1]);
}

#[test]
fn deleted_work_returns_with_its_objects() {
    let bindings: Vec<Value> = (0..8)
        .map(|i| binding("a", &format!("b{i}"), &user("u")))
        .collect();
    for lost in 1..=3 {
        let mut world = World::new(json!({ "roleBindings": bindings }));
        world.limits.manifests = 3;
        world.reconcile();
        world.agent(&[]);
        let before = world.works.clone();
        assert_eq!(before.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        // It goes, and then it is gone.
        let going = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        world.works.get_mut(&lost).unwrap().metadata.deletion_timestamp = Some(going);
        assert_eq!(world.ids(), before.values().flat_map(ids).collect::<Vec<_>>());
        world.works.remove(&lost);
        world.reconcile();
        for (number, work) in &world.works {
            assert_eq!(work.spec, before[number].spec, "{lost} was lost: {number}");
        }
        assert_eq!(world.works.len(), 3, "{lost} was lost");
    }
}

#[test]
fn moving_object_is_dropped_only_after_the_new_work_applied_it() {
    let role = |name: &str, verbs: usize| json!({"namespace": name, "rules": [{"verbs": (0..verbs).map(|i| format!("v{i}")).collect::<Vec<_>>()}]});
    let mut world = World::new(json!({"roles": [role("a", 10), role("b", 10), role("c", 10)]}));
    world.limits.bytes = 800;
    world.reconcile();
    world.agent(&[]);
    assert_eq!(world.works.len(), 1, "{:?}", world.condition("Ready"));
    // `a` grows: `b` or `c`, unchanged, has to leave; until it has arrived, the first work stays as it is.
    world.permission = permission(json!({"roles": [role("a", 60), role("b", 10), role("c", 10)]}));
    let before = world.works[&1].spec.clone();
    world.reconcile();
    assert_eq!(
        world.works[&1].spec, before,
        "nothing is dropped and nothing grows before the move is done"
    );
    assert_eq!(world.works[&2].spec.workload.manifests.len(), 1);
    let moved = ids(&world.works[&2])[0].clone();
    assert_ne!(moved, "Role a/p");
    assert_eq!(world.condition("Ready").1, "Pending");
    world.agent(&[]);
    world.reconcile();
    assert!(!ids(&world.works[&1]).contains(&moved), "dropped after the move");
    world.agent(&[]);
    world.reconcile();
    assert_eq!(world.condition("Ready").1, "Granted");
    assert_eq!(
        world.works[&1].spec.workload.manifests[0].0["rules"][0]["verbs"]
            .as_array()
            .unwrap()
            .len(),
        60
    );
}

#[test]
fn permission_of_600_kib_fits() {
    let many: Vec<Value> = (0..40).map(|i| json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": [format!("name-{i}-{}", "x".repeat(400))], "verbs": ["get"]})).collect();
    let roles: Vec<Value> = (0..32)
        .map(|i| json!({"namespace": format!("n{i}"), "rules": many}))
        .collect();
    let mut world = World::new(json!({ "roles": roles }));
    assert!(serde_json::to_string(&world.permission).unwrap().len() > 600 * 1024);
    world.reconcile();
    assert_eq!(world.works.len(), 2);
    for work in world.works.values() {
        assert!(serde_json::to_string(&work.spec).unwrap().len() < 512_000);
    }
    world.agent(&[]);
    assert_eq!(world.condition("Ready").1, "Granted");
}

#[test]
fn resource_status_is_bounded_and_failing_objects_come_first() {
    let bindings: Vec<Value> = (0..1200)
        .map(|i| binding("a", &format!("b{i}"), &user("u")))
        .collect();
    let mut world = World::new(json!({ "roleBindings": bindings }));
    world.reconcile();
    world.agent(&["b1199"]);
    let status = world.status().resource_status.unwrap();
    assert_eq!((status.role_bindings.len(), status.omitted), (1000, Some(200)));
    assert_eq!(status.role_bindings[0].name, "b1199");
}

#[test]
fn second_reconcile_changes_nothing() {
    let mut world = World::new(json!({
        "clusterRole": {"rules": rules()}, "clusterRoleBinding": {"subject": user("u")}, "validate": true,
        "roles": [{"namespaceSelector": {}, "rules": rules()}], "roleBindings": [binding("a", "x", &account("robot"))],
    }));
    world.reconcile();
    world.agent(&[]);
    world.reconcile();
    let (works, status) = (world.works.clone(), world.permission.status.clone());
    world.now += 1000;
    world.reconcile();
    assert_eq!((works, status), (world.works, world.permission.status));
}

#[test]
fn work_written_by_ocm_is_adopted_in_place() {
    let mut world = World::new(json!({
        "clusterRole": {"rules": rules()}, "clusterRoleBinding": {"subject": user("u")},
        "roleBindings": [binding("a", "x", &user("u"))],
    }));
    // As upstream writes it: the same name and owner, no annotations.
    world.reconcile();
    let ours = world.works[&1].clone();
    let theirs = world.works.get_mut(&1).unwrap();
    for manifest in &mut theirs.spec.workload.manifests {
        manifest.0["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
    }
    let adopted = world.plan();
    assert!(adopted.delete.is_empty(), "nothing is revoked");
    assert_eq!(adopted.works.len(), 1);
    assert_eq!(adopted.works[&1].metadata.name, ours.metadata.name);
    assert_eq!(
        ids(&adopted.works[&1]),
        ids(&world.works[&1]),
        "the same objects, in the same order"
    );
    assert_eq!(
        adopted.works[&1].metadata.owner_references,
        ours.metadata.owner_references
    );
}

#[test]
fn every_work_has_the_configured_executor() {
    let world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    let executor: Executor = serde_json::from_value(
        json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "s"}}}),
    )
    .unwrap();
    let plan = plan(&Observation {
        executor: Some(executor.clone()),
        ..world.observe()
    });
    assert_eq!(plan.works[&1].spec.executor.as_ref(), Some(&executor));
    assert_eq!(world.plan().works[&1].spec.executor, None);
}
