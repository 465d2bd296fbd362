//! A permission that is being deleted and that a finalizer keeps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::work::{PRUNED_CONDITION, PRUNED_REASON};

use super::*;

fn granted() -> World {
    let mut world = World::new(
        json!({"roleBindings": [binding("a", "x", &user("u")), {"namespaceSelector": {}, "name": "y",
        "subject": user("u"), "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}}]}),
    );
    world.reconcile();
    world.agent(&[]);
    world.reconcile();
    let meta = &mut world.permission.metadata;
    meta.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    meta.finalizers = Some(vec!["example.com/keep".into()]);
    meta.generation = Some(2);
    world
}

fn end(world: &mut World) -> ClusterPermissionStatus {
    let works: Vec<_> = world.works.values().cloned().map(Arc::new).collect();
    let now = Timestamp::from_second(world.now).unwrap();
    let status = status_of_deleted(&world.permission, &works, world.cluster.as_ref(), now);
    world.permission.status = Some(status.clone());
    status
}

#[test]
fn deleted_permission_reports_pending_revocation_until_done() {
    let mut world = granted();
    let conditions = &mut world
        .cluster
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .conditions;
    conditions[0].status = "Unknown".into();
    conditions[0].message = "no lease".into();
    let first = end(&mut world);
    let types: Vec<&str> = first.conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(
        types,
        ["AppliedRBACManifestWork", "Ready", "Pending"],
        "the other conditions are removed"
    );
    for condition in &first.conditions[..2] {
        let Condition { status, reason, .. } = condition;
        assert_eq!((status.as_str(), reason.as_str()), ("False", "Deleting"));
        assert_eq!(condition.observed_generation, Some(2));
        for words in [
            "pending since 2027-01-15T08:00:00Z: ManifestWork p-abcde is still there",
            "the cluster is not available: no lease",
        ] {
            assert!(condition.message.contains(words), "{}", condition.message);
        }
    }
    assert_eq!(first.resource_status, None);
    assert!(first.namespace_selections.is_empty());
    assert_eq!(
        first.subjects.as_deref(),
        Some("User u"),
        "its subjects are still shown"
    );
    world.now += 500;
    assert_eq!(end(&mut world), first, "an unchanged status is not written");

    world.works.clear();
    let last = end(&mut world);
    for condition in &last.conditions {
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Deleting"));
        for words in ["everything that it granted is gone", "example.com/keep"] {
            assert!(condition.message.contains(words), "{}", condition.message);
        }
        assert!(!condition.message.contains("pending"), "{}", condition.message);
    }
    world.now += 500;
    assert_eq!(end(&mut world), last);
}

#[test]
fn deleted_permission_names_objects_the_agent_cannot_prune() {
    let mut world = granted();
    let claims = json!([{"name": "agent.writ.dev", "value": "grants,work"}]);
    let status = world.cluster.as_mut().unwrap().status.as_mut().unwrap();
    status.cluster_claims = serde_json::from_value(claims).unwrap();
    let left = json!({"type": PRUNED_CONDITION, "status": "False", "reason": PRUNED_REASON,
        "message": "still there: rolebindings a/x", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let work = world.works.get_mut(&1).unwrap();
    let conditions = &mut work.status.as_mut().unwrap().conditions;
    conditions.push(serde_json::from_value(left).unwrap());
    let status = end(&mut world);
    let ready = condition::find(&status.conditions, "Ready").unwrap();
    assert!(
        ready.message.contains("still there: rolebindings a/x"),
        "{}",
        ready.message
    );
}
