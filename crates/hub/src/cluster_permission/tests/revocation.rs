//! Nothing is called revoked while the agent has still to take it away.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use writ_api::{
    rbac::cluster_permission::CONDITION_PENDING,
    work::{PRUNED_CONDITION, PRUNED_REASON},
};

use super::*;

/// A permission that grants to an account and to a user, in one work, and has done so.
fn granted(with_user: bool) -> World {
    let mut bindings = vec![binding("a", "robot", &account("robot"))];
    bindings.extend(with_user.then(|| binding("a", "user", &user("u"))));
    let mut world = World::new(json!({ "roleBindings": bindings }));
    world.accounts.insert("robot".into());
    world.add_on = Some("agents");
    world.reconcile();
    world.agent(&[]);
    world.reconcile();
    assert_eq!(world.condition("Ready").1, "Granted");
    world
}

/// The cluster goes away, or comes back.
fn available(world: &mut World, available: bool) {
    let conditions = &mut world
        .cluster
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .conditions;
    conditions[0].status = if available { "True" } else { "Unknown" }.into();
    conditions[0].message = "no lease".into();
}

/// What the controller does, where the agent keeps the works that are deleted.
fn reconcile(world: &mut World) {
    let before = world.works.clone();
    world.reconcile();
    for (number, mut work) in before {
        let going = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        work.metadata.deletion_timestamp = Some(going);
        world.works.entry(number).or_insert(work);
    }
}

fn conditions(world: &World) -> Vec<Condition> {
    world.permission.status.clone().unwrap().conditions
}

fn written(world: &World, type_: &str) -> String {
    condition::find(&conditions(world), type_)
        .unwrap()
        .message
        .clone()
}

const SINCE: &str = "pending since 2027-01-15T08:01:40Z: ";
const OFFLINE: &str = "; the cluster is not available: no lease";
const STILL_THERE: &str =
    "ManifestWork p-abcde is still there: what it grants ends when the agent has deleted it";
const NOT_APPLIED: &str = "the agent has not applied the work";

#[test]
fn pending_revocation_is_reported_by_the_deciding_condition() {
    type Change = fn(&mut World);
    let no_account: Change = |world| world.accounts.clear();
    let no_binding: Change = |world| world.permission.spec.role_bindings.clear();
    let bad: Change = |world| world.permission.spec.role_bindings[0].role_ref.kind = "Rule".into();
    let no_cluster: Change = |world| {
        world.cluster = None;
        world.permission.spec.role_bindings.truncate(1);
        world.permission.spec.role_bindings[0].subject = serde_json::from_value(user("other")).unwrap();
    };
    let not_read: Change = |world| {
        world.not_synced.accounts = true;
        world.permission.spec.role_bindings.truncate(1);
    };
    let applied = "AppliedRBACManifestWork";
    for (what, with_user, change, reason, words, tells, left) in [
        (
            "the account of the only binding goes",
            false,
            no_account,
            "SubjectNotFound",
            "robot does not exist; what was granted to it may still be in force; ",
            &["SubjectPresent", applied][..],
            STILL_THERE,
        ),
        (
            "the account of one of two bindings goes",
            true,
            no_account,
            "SubjectNotFound",
            "robot does not exist; what was granted to it may still be in force; ",
            &["SubjectPresent", applied],
            NOT_APPLIED,
        ),
        (
            "the only binding goes",
            false,
            no_binding,
            "FailedValidationNoBindingsDefined",
            "no bindings defined; ",
            &[applied],
            STILL_THERE,
        ),
        (
            "an entry cannot be built",
            true,
            bad,
            "FailedBuildManifestWork",
            "spec.roleBindings[0].roleRef.kind",
            &[applied],
            NOT_APPLIED,
        ),
        (
            "the cluster is not there",
            true,
            no_cluster,
            "FailedValidationNotInManagedClusterNamespace",
            "namespace value is not a managed cluster; ",
            &[applied],
            NOT_APPLIED,
        ),
        (
            "an entry goes while something cannot be read",
            true,
            not_read,
            "NotReadYet",
            "stays as it was",
            &[applied],
            NOT_APPLIED,
        ),
    ] {
        let mut world = granted(with_user);
        available(&mut world, false);
        world.now += 100;
        change(&mut world);
        let offline = if world.cluster.is_some() { OFFLINE } else { "" };
        reconcile(&mut world);
        let first = conditions(&world);
        // Nothing new later, but the time: nothing is written.
        for _ in 0..2 {
            world.now += 500;
            reconcile(&mut world);
            assert_eq!(conditions(&world), first, "{what}");
        }
        let (status, why, message) = world.condition("Ready");
        assert_eq!((status.as_str(), why.as_str()), ("False", reason), "{what}");
        assert!(message.contains(words), "{what}: {message}");
        for type_ in tells.iter().chain(&["Ready"]) {
            let message = written(&world, type_);
            let told = format!("{SINCE}{left}{offline}");
            assert_eq!(message.matches(&told).count(), 1, "{what}, {type_}: {message}");
            assert!(!message.contains("is revoked"), "{what}, {type_}: {message}");
        }
        assert!(message.contains("revocation pending"), "{what}: {message}");

        // The agent is back: it has done it, and no word of it stays.
        world.not_synced.accounts = false;
        if world.cluster.is_some() {
            available(&mut world, true);
        }
        world
            .works
            .retain(|_, work| work.metadata.deletion_timestamp.is_none());
        world.agent(&[]);
        reconcile(&mut world);
        for type_ in tells.iter().chain(&["Ready"]) {
            let message = written(&world, type_);
            assert!(!message.contains("pending"), "{what}, {type_}: {message}");
        }
        if reason == "SubjectNotFound" {
            let message = written(&world, "Ready");
            let done = "robot does not exist; what was granted to it is revoked until it exists";
            assert!(message.ends_with(done), "{what}: {message}");
        }
    }
}

#[test]
fn first_content_of_a_work_has_no_pending_revocation() {
    // The first content of a work takes nothing away, however long the agent is away.
    let mut world = World::new(
        json!({"roleBindings": [binding("a", "robot", &account("robot")), binding("a", "user", &user("u"))]}),
    );
    available(&mut world, false);
    for _ in 0..2 {
        reconcile(&mut world);
        let message = world.condition("SubjectPresent").2;
        assert!(message.ends_with("is revoked until it exists"), "{message}");
        assert_eq!(world.condition("Ready").2, message);
        let message = world.condition("AppliedRBACManifestWork").2;
        assert!(message.contains("\npending since "), "{message}");
        assert!(!message.contains("revocation"), "{message}");
    }
}

#[test]
fn unpruned_objects_are_reported_beside_other_problems() {
    let mut world = granted(true);
    let claims = json!([{"name": "agent.writ.dev", "value": "grants,work"}]);
    let status = world.cluster.as_mut().unwrap().status.as_mut().unwrap();
    status.cluster_claims = serde_json::from_value(claims).unwrap();
    world.accounts.clear();
    world.reconcile();
    world.agent(&[]);
    let left = json!({"type": PRUNED_CONDITION, "status": "False", "reason": PRUNED_REASON,
        "message": "still there: rolebindings a/robot", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let work = world.works.get_mut(&1).unwrap();
    let conditions = &mut work.status.as_mut().unwrap().conditions;
    conditions.push(serde_json::from_value(left).unwrap());
    for type_ in ["SubjectPresent", "AppliedRBACManifestWork", "Ready"] {
        let message = world.condition(type_).2;
        let words = "; revocation pending since 2027-01-15T08:00:00Z: still there: rolebindings a/robot";
        assert!(message.ends_with(words), "{type_}: {message}");
        assert!(!message.contains("is revoked"), "{type_}: {message}");
    }
    assert_eq!(
        world.condition("AppliedRBACManifestWork").0,
        "True",
        "what is wanted is there"
    );
}

#[test]
fn object_the_agent_could_not_narrow_is_not_revoked() {
    let shared = json!({"namespace": "a", "name": "shared", "subjects": [user("u"), account("robot")],
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}});
    let mut world = World::new(json!({ "roleBindings": [shared] }));
    world.accounts.insert("robot".into());
    world.add_on = Some("agents");
    world.reconcile();
    world.agent(&["shared"]);
    assert!(
        !world.condition("Ready").2.contains("revocation"),
        "there was no before"
    );
    world.agent(&[]);
    world.reconcile();
    world.now += 100;
    world.accounts.clear();
    world.reconcile();
    world.agent(&["shared"]);
    let first = world.status().conditions;
    world.permission.status.as_mut().unwrap().conditions = first.clone();
    world.now += 500;
    assert_eq!(world.status().conditions, first, "written once");
    let told = format!("{SINCE}the agent could not apply RoleBinding a/shared");
    for type_ in ["SubjectPresent", "AppliedRBACManifestWork", "Ready"] {
        let message = world.condition(type_).2;
        assert_eq!(message.matches(&told).count(), 1, "{type_}: {message}");
        assert!(!message.contains("is revoked"), "{type_}: {message}");
    }
    world.agent(&[]);
    let message = world.condition("SubjectPresent").2;
    assert!(message.ends_with("is revoked until it exists"), "{message}");
}

#[test]
fn grant_not_processed_by_the_agent_is_not_revoked() {
    let everywhere = json!({"namespaceSelector": {}, "name": "x", "subjects": [user("u"), account("robot")],
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}});
    let mut world = World::new(json!({ "roleBindings": [everywhere] }));
    world.accounts.insert("robot".into());
    world.add_on = Some("agents");
    world.reconcile();
    world.accounts.clear();
    world.reconcile();
    world.agent(&[]);
    for (observed, words) in [
        (1, "the agent has not processed spec.roleBindings[0] yet"),
        (2, "is revoked until it exists"),
    ] {
        let value =
            |name: &str, n: i64| json!({"name": name, "fieldValue": {"type": "Integer", "integer": n}});
        let values = [
            value("generation", 2),
            value("observedGeneration", observed),
            value("selected", 1),
            value("ready", 1),
        ];
        let reports = world.works.get_mut(&1).unwrap().status.as_mut().unwrap();
        reports.resource_status.manifests[0].status_feedback =
            serde_json::from_value(json!({ "values": values })).unwrap();
        for type_ in ["SubjectPresent", "Ready"] {
            let message = world.condition(type_).2;
            assert!(message.ends_with(words), "{observed}, {type_}: {message}");
        }
    }
}

#[test]
fn odd_texts_in_the_spec_keep_the_status_stable() {
    let mut world = granted(true);
    available(&mut world, false);
    // A problem quotes the spec, and a long quote leaves room for the rest.
    let odd = format!("pending since yesterday: {}", "x".repeat(40_000));
    world.permission.spec.role_bindings[0].role_ref.kind = odd;
    reconcile(&mut world);
    let first = conditions(&world);
    assert!(written(&world, "Ready").ends_with(OFFLINE));
    world.now += 500;
    reconcile(&mut world);
    assert!(conditions(&world) == first, "written once");
}

#[test]
fn pending_time_is_not_taken_from_texts_in_the_spec() {
    let mut world = granted(true);
    available(&mut world, false);
    world.now += 100;
    world.permission.spec.role_bindings[0].role_ref.kind = "pending since 2020-01-01T00:00:00Z: x".into();
    for _ in 0..2 {
        reconcile(&mut world);
        world.now += 500;
        assert!(
            written(&world, "Ready").contains(SINCE),
            "{}",
            written(&world, "Ready")
        );
    }
}

#[test]
fn pending_condition_holds_while_something_is_pending() {
    let mut world = granted(true);
    let pending = |world: &World| condition::find(&conditions(world), CONDITION_PENDING).cloned();
    assert_eq!(pending(&world), None);
    world.now += 100;
    world.accounts.clear();
    world.reconcile();
    let first = pending(&world).unwrap();
    assert_eq!((&*first.status, &*first.reason), ("True", "WaitingForAgent"));
    assert_eq!(first.last_transition_time.0.as_second(), world.now);
    world.now += 100;
    available(&mut world, false);
    world.reconcile();
    let second = pending(&world).unwrap();
    assert_eq!(second.last_transition_time, first.last_transition_time);
    assert!(second.message.ends_with(OFFLINE), "{}", second.message);
    world.agent(&[]);
    world.reconcile();
    assert_eq!(pending(&world), None);
}

#[test]
fn pending_time_of_a_status_without_the_condition_is_that_of_ready() {
    let mut world = World::new(json!({"roleBindings": [binding("a", "x", &user("u"))]}));
    available(&mut world, false);
    world.reconcile();
    let written_before = world.condition("Ready");
    let status = world.permission.status.as_mut().unwrap();
    status.conditions.retain(|c| c.type_ != CONDITION_PENDING);
    world.now += 500;
    assert_eq!(world.condition("Ready"), written_before);
}
