//! Tables against plan and rollout.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use writ_api::work::{ManifestWork, ManifestWorkReplicaSet, RolloutStrategy};
use writ_controller::condition;
use writ_runtime::cel::{Answer, Expression, Variable};

use super::{
    model::{Attempts, ClusterState, Group, Observed, Plan, Unwritten},
    ownership::{foreign, is_own},
    plan::{plan, undeleted},
    progress_rules::with_rules,
    rollout::{Next, next},
};

fn group(index: i32, clusters: &[&str]) -> Group {
    Group {
        name: format!("g{index}"),
        index,
        clusters: clusters.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn strategy(value: Value) -> RolloutStrategy {
    serde_json::from_value(value).unwrap()
}

const OK: ClusterState = ClusterState::Succeeded(Duration::from_hours(1));
const ON: ClusterState = ClusterState::Progressing(Duration::from_secs(10));

#[test]
fn rollout_is_as_fast_as_its_strategy_allows() {
    let groups = [group(0, &["a", "b"]), group(1, &["c", "d"])];
    let apply = |strategy: &RolloutStrategy, states: [ClusterState; 4]| -> Next {
        next(strategy, &groups, |cluster| {
            let index = ["a", "b", "c", "d"]
                .iter()
                .position(|name| *name == cluster)
                .unwrap();
            states[index]
        })
    };
    let pending = ClusterState::Pending;
    let all = strategy(json!({"type": "All"}));
    let two = strategy(json!({"type": "Progressive", "progressive": {"maxConcurrency": 2}}));
    let half = strategy(
        json!({"type": "Progressive", "progressive": {"maxConcurrency": "25%", "maxFailures": "50%"}}),
    );
    let mandatory = strategy(
        json!({"type": "Progressive", "progressive": {"mandatoryDecisionGroups": [{"groupName": "g1"}]}}),
    );
    let groups_first = strategy(json!({"type": "ProgressivePerGroup", "progressivePerGroup": {}}));
    for (strategy, states, expected) in [
        (&all, [pending; 4], "abcd"),
        (&all, [ClusterState::Failed, pending, OK, ON], "b"),
        (&two, [pending; 4], "ab"),
        (&two, [ON, pending, pending, pending], "b"),
        (&two, [ON, ON, pending, pending], ""),
        (&two, [OK, ON, pending, pending], "c"),
        (&two, [OK, ClusterState::Failed, pending, pending], ""),
        (&half, [OK, ClusterState::Failed, pending, pending], "c"),
        (&mandatory, [pending; 4], "cd"),
        (&mandatory, [pending, pending, OK, ON], ""),
        (&mandatory, [pending, pending, OK, OK], "ab"),
        (&groups_first, [pending; 4], "ab"),
        (&groups_first, [OK, ON, pending, pending], ""),
        (&groups_first, [OK, OK, pending, pending], "cd"),
    ] {
        assert_eq!(
            apply(strategy, states).apply.concat(),
            expected,
            "{strategy:?} {states:?}"
        );
    }
    assert!(apply(&two, [OK; 4]).complete);
    assert!(!apply(&two, [OK, OK, OK, ON]).complete);
    // A success must have lasted, and a deadline ends the wait.
    let slow = strategy(
        json!({"type": "ProgressivePerGroup", "progressivePerGroup": {"minSuccessTime": "2h", "progressDeadline": "5s"}}),
    );
    let waiting = apply(&slow, [OK, OK, pending, pending]);
    assert_eq!(
        (waiting.apply.len(), waiting.look_again),
        (0, Some(Duration::from_hours(1)))
    );
    assert!(apply(&slow, [ON, OK, pending, pending]).apply.is_empty());
}

#[test]
fn cluster_that_could_not_be_written_is_one_failure_until_it_is() {
    let groups = [group(0, &["a", "b", "c", "d"])];
    let step = |most: u32, failures: Value, states: [ClusterState; 4]| -> Next {
        let progressive = json!({"maxConcurrency": most, "maxFailures": failures});
        let strategy = strategy(json!({"type": "Progressive", "progressive": progressive}));
        next(&strategy, &groups, |cluster| {
            let index = ["a", "b", "c", "d"].iter().position(|name| *name == cluster);
            states[index.unwrap()]
        })
    };
    let (pending, failed, retry) = (ClusterState::Pending, ClusterState::Failed, ClusterState::Retry);
    for (most, failures, states, expected) in [
        // It takes nobody's place while it waits.
        (1, json!(1), [failed, pending, pending, pending], "b"),
        (1, json!(0), [failed, pending, pending, pending], ""),
        // It comes first when it is tried again, and nobody else comes if it is one too many.
        (2, json!(0), [pending, pending, pending, retry], "d"),
        (2, json!(1), [pending, pending, pending, retry], "da"),
        // One attempt takes one place.
        (1, json!("50%"), [retry, pending, pending, retry], "a"),
        (1, json!("50%"), [ON, pending, pending, retry], ""),
    ] {
        let next = step(most, failures.clone(), states);
        assert_eq!(next.apply.concat(), expected, "{most} {failures} {states:?}");
        assert!(!next.complete);
    }
    assert!(!step(1, json!("100%"), [OK, OK, OK, failed]).complete);
}

fn set(template: &Value) -> ManifestWorkReplicaSet {
    serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "web", "namespace": "team", "generation": 3},
        "spec": {"manifestWorkTemplate": template, "placementRefs": [{"name": "p"}]},
    }))
    .unwrap()
}

fn template() -> Value {
    json!({"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}]}})
}

fn observe(set: &ManifestWorkReplicaSet, groups: Option<Vec<Group>>, works: &[ManifestWork]) -> Plan {
    let placements: BTreeMap<String, Vec<Group>> =
        groups.map(|groups| ("p".into(), groups)).into_iter().collect();
    plan(&Observed {
        set,
        placements: &placements,
        works,
        unwritten: &BTreeMap::new(),
        attempts: Attempts::default(),
        now: Timestamp::from_second(1000).unwrap(),
    })
}

fn reasons(plan: &Plan) -> Vec<&str> {
    ["PlacementVerified", "PlacementRolledOut", "ManifestworkApplied"]
        .iter()
        .map(|type_| {
            condition::find(&plan.status.conditions, type_)
                .unwrap()
                .reason
                .as_str()
        })
        .collect()
}

#[test]
fn selected_clusters_get_a_work_and_others_lose_theirs() {
    let set = set(&template());
    let first = observe(&set, Some(vec![group(0, &["c1", "c2"])]), &[]);
    assert_eq!(first.apply.len(), 2);
    assert_eq!(reasons(&first), ["AsExpected", "Progressing", "Processing"]);
    let mut works = first.apply;
    for work in &mut works {
        work.metadata.generation = Some(1);
        work.status = Some(
            serde_json::from_value(json!({"conditions": [
                {"type": "Applied", "status": "True", "reason": "R", "message": "", "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z"},
                {"type": "Available", "status": "True", "reason": "R", "message": "", "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z"},
            ]}))
            .unwrap(),
        );
    }
    let second = observe(&set, Some(vec![group(0, &["c1", "c2"])]), &works);
    assert!(second.apply.is_empty() && second.delete.is_empty());
    assert_eq!(reasons(&second), ["AsExpected", "Complete", "AsExpected"]);
    assert_eq!(second.status.summary.applied, 2);
    assert_eq!(second.status.summary.updated, 2);
    let fewer = observe(&set, Some(vec![group(0, &["c1"])]), &works);
    assert_eq!(fewer.delete.len(), 1);
    assert_eq!(fewer.delete[0].metadata.namespace.as_deref(), Some("c2"));
    // A placement that is not there decides nothing; one that decides for nobody does, and so does a new reference.
    let gone = observe(&set, None, &works);
    assert!(gone.delete.is_empty() && gone.apply.is_empty());
    assert_eq!(reasons(&gone)[0], "PlacementDecisionNotFound");
    assert_eq!(observe(&set, Some(vec![group(0, &[])]), &works).delete.len(), 2);
    let mut other = set.clone();
    other.spec.placement_refs[0].name = "q".into();
    assert_eq!(observe(&other, None, &works).delete.len(), 2);
    // No decisions, and empty ones.
    assert_eq!(reasons(&observe(&set, None, &[]))[0], "PlacementDecisionNotFound");
    assert_eq!(
        reasons(&observe(&set, Some(vec![group(0, &[])]), &[])),
        ["PlacementDecisionEmpty", "Complete", "PlacementDecisionEmpty"]
    );
}

/// A plan for three clusters of which these could not be written, and these were.
fn after(set: &ManifestWorkReplicaSet, unwritten: &[(&str, bool)], written: &[&str]) -> Plan {
    let unwritten = unwritten.iter().map(|(cluster, due)| {
        let why = format!("create ManifestWork {cluster}/web-1: namespaces {cluster:?} not found");
        ((*cluster).to_owned(), Unwritten { why, due: *due })
    });
    let groups = vec![group(0, &["aaa-gone", "cluster1", "zcluster"])];
    plan(&Observed {
        set,
        placements: &[("p".to_owned(), groups)].into(),
        works: &[],
        unwritten: &unwritten.collect(),
        attempts: Attempts {
            written: &written.iter().map(|cluster| (*cluster).to_owned()).collect(),
            ..Attempts::default()
        },
        now: Timestamp::from_second(1000).unwrap(),
    })
}

fn clusters(plan: &Plan) -> Vec<String> {
    let namespaces = plan
        .apply
        .iter()
        .filter_map(|work| work.metadata.namespace.clone());
    namespaces.collect()
}

#[test]
fn cluster_that_cannot_be_written_is_named_and_stops_no_other() {
    let mut set = set(&template());
    let first = after(&set, &[("aaa-gone", false)], &["cluster1"]);
    assert_eq!(clusters(&first), ["zcluster"]);
    assert_eq!(reasons(&first), ["AsExpected", "Progressing", "NotAsExpected"]);
    for type_ in ["PlacementRolledOut", "ManifestworkApplied"] {
        let said = &condition::find(&first.status.conditions, type_).unwrap().message;
        assert!(
            said.starts_with("1 of 3 clusters cannot be written")
                && said.contains("create ManifestWork aaa-gone/web-1: namespaces \"aaa-gone\" not found"),
            "{type_}: {said}"
        );
    }
    assert_eq!(first.failing, ["aaa-gone".to_owned()].into());
    // It is one of the failures that a strategy tolerates, and gives its place to the next.
    let progressive = |failures: u32| {
        let progressive = json!({"maxConcurrency": 1, "maxFailures": failures});
        strategy(json!({"type": "Progressive", "progressive": progressive}))
    };
    set.spec.placement_refs[0].rollout_strategy = progressive(1);
    assert_eq!(clusters(&after(&set, &[("aaa-gone", false)], &[])), ["cluster1"]);
    assert_eq!(clusters(&after(&set, &[("aaa-gone", true)], &[])), ["aaa-gone"]);
    // What was written a moment ago has the place.
    let room = after(&set, &[("aaa-gone", true)], &["zcluster"]);
    assert!(room.apply.is_empty() && !room.failing.is_empty());
    set.spec.placement_refs[0].rollout_strategy = progressive(0);
    assert!(after(&set, &[("aaa-gone", false)], &[]).apply.is_empty());
}

#[test]
fn failures_are_counted_and_the_first_are_named() {
    let set = set(&template());
    let names: Vec<String> = (10..40).map(|index| format!("c{index}")).collect();
    let unwritten = names.iter().map(|cluster| {
        let (why, due) = (
            format!("create ManifestWork {cluster}/web-1: {}", "x".repeat(5000)),
            false,
        );
        (cluster.clone(), Unwritten { why, due })
    });
    let whys: Vec<String> = (0..12)
        .map(|index| format!("delete ManifestWork d{index}/web-1: no"))
        .collect();
    let group = group(0, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let plan = plan(&Observed {
        set: &set,
        placements: &[("p".to_owned(), vec![group])].into(),
        works: &[],
        unwritten: &unwritten.collect(),
        attempts: Attempts {
            undeleted: &whys,
            ..Attempts::default()
        },
        now: Timestamp::from_second(1000).unwrap(),
    });
    let applied = condition::find(&plan.status.conditions, "ManifestworkApplied").unwrap();
    let said = &applied.message;
    assert!(
        said.starts_with("30 of 30 clusters") && said.contains("c19/web-1") && !said.contains("c20/web-1")
    );
    assert!(
        said.contains("and 20 more") && said.contains("12 works") && said.ends_with("and 2 more"),
        "{said}"
    );
    assert!(said.len() < 5000, "{}", said.len());
    let stuck = undeleted(&set, &whys, Timestamp::from_second(1000).unwrap());
    let applied = condition::find(&stuck.conditions, "ManifestworkApplied").unwrap();
    assert!(applied.status == "False" && applied.message.contains("d0/web-1: no"));
}

#[test]
fn progress_deadline_runs_from_the_last_write() {
    let mut set = set(&template());
    set.spec.placement_refs[0].rollout_strategy = strategy(
        json!({"type": "Progressive", "progressive": {"maxConcurrency": 1, "progressDeadline": "60s"}}),
    );
    let chosen = || Some(vec![group(0, &["c1", "c2"])]);
    let mut work = observe(&set, chosen(), &[]).apply.remove(0);
    // Made long ago, changed a moment ago, and the agent has not looked at it yet. It is second 1000.
    let stale = json!([{"type": "Applied", "status": "True", "reason": "R", "message": "", "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
    work.metadata.generation = Some(2);
    work.metadata.creation_timestamp = serde_json::from_value(json!("1970-01-01T00:00:00Z")).unwrap();
    work.status = Some(serde_json::from_value(json!({"conditions": stale})).unwrap());
    for (time, manager, subresource, waits) in [
        (
            "1970-01-01T00:16:00Z",
            "writ-hub",
            Value::Null,
            Some(Duration::from_secs(20)),
        ),
        ("1970-01-01T00:10:00Z", "writ-hub", Value::Null, None),
        ("1970-01-01T00:16:00Z", "writ-agent", Value::Null, None),
        ("1970-01-01T00:16:00Z", "writ-hub", json!("status"), None),
    ] {
        let fields =
            json!([{"manager": manager, "operation": "Update", "time": time, "subresource": subresource}]);
        work.metadata.managed_fields = serde_json::from_value(fields).unwrap();
        let plan = observe(&set, chosen(), std::slice::from_ref(&work));
        assert_eq!(plan.look_again, waits, "{manager} {time}");
    }
}

#[test]
fn manifests_of_wellknown_kinds_get_progress_rules() {
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}});
    let spec = serde_json::from_value(json!({"workload": {"manifests": [deployment]}})).unwrap();
    let ruled = with_rules(&spec);
    assert_eq!(ruled.manifest_configs.len(), 1);
    assert_eq!(
        ruled.manifest_configs[0].condition_rules[0].condition,
        "Progressing"
    );
    crate::admission::handlers::manifest_work_spec::check(&ruled, 10_000).unwrap();
    let own = serde_json::from_value(
        json!({"workload": {"manifests": [deployment]}, "manifestConfigs": [
        {"resourceIdentifier": {"group": "apps", "resource": "deployments", "name": "*", "namespace": "*"},
         "conditionRules": [{"condition": "Progressing", "type": "CEL", "celExpressions": ["false"]}]}]}),
    )
    .unwrap();
    assert_eq!(with_rules(&own), own);
    // Rules for one object are no rules for another.
    let other = serde_json::from_value(
        json!({"workload": {"manifests": [deployment]}, "manifestConfigs": [
        {"resourceIdentifier": {"group": "apps", "resource": "deployments", "name": "e", "namespace": "n"},
         "conditionRules": [{"condition": "Progressing", "type": "CEL", "celExpressions": ["false"]}]}]}),
    )
    .unwrap();
    assert_eq!(with_rules(&other).manifest_configs.len(), 2);
}

/// Whether the rules of a kind say that it progresses, and that it is degraded.
fn computed(api_version: &str, kind: &str, status: &Value) -> (bool, bool) {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "d", "namespace": "n", "generation": 2},
        "spec": {"replicas": 1}});
    let spec = serde_json::from_value(json!({"workload": {"manifests": [object]}})).unwrap();
    object["status"] = status.clone();
    let ruled = with_rules(&spec);
    let says = |condition: &str| {
        let rule = ruled.manifest_configs[0]
            .condition_rules
            .iter()
            .find(|rule| rule.condition == condition)
            .unwrap();
        let expression = Expression::parse(&rule.cel_expressions[0]).unwrap();
        expression
            .evaluate(&[("object", &Variable::from(&object))])
            .unwrap()
            == Answer::Bool(true)
    };
    (says("Progressing"), says("Degraded"))
}

#[test]
fn failed_object_is_degraded_and_stays_progressing() {
    let job = |type_: &str| {
        computed(
            "batch/v1",
            "Job",
            &json!({"conditions": [{"type": type_, "status": "True"}]}),
        )
    };
    assert_eq!(computed("batch/v1", "Job", &json!({})), (true, false));
    assert_eq!(job("Complete"), (false, false));
    assert_eq!(job("Failed"), (true, true));
    let deployment = |available: i64, progressing: &str| {
        let status = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available,
            "conditions": [{"type": "Progressing", "status": progressing}]});
        computed("apps/v1", "Deployment", &status)
    };
    assert_eq!(deployment(0, "True"), (true, false));
    assert_eq!(deployment(0, "False"), (true, true));
    assert_eq!(deployment(1, "True"), (false, false));
    let pod = |phase: &str, ready: &str| {
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        computed("v1", "Pod", &status)
    };
    assert_eq!(computed("v1", "Pod", &json!({})), (true, false));
    assert_eq!(pod("Pending", "False"), (true, false));
    assert_eq!(pod("Running", "False"), (true, false));
    assert_eq!(pod("Running", "True"), (false, false));
    assert_eq!(pod("Succeeded", "False"), (false, false));
    assert_eq!(pod("Failed", "False"), (true, true));
}

#[test]
fn progress_rule_identifies_its_manifest_like_an_agent() {
    for (api_version, kind, group, resource) in [
        ("apps/v1", "Deployment", "apps", "deployments"),
        ("batch/v1", "Job", "batch", "jobs"),
        ("v1", "Pod", "", "pods"),
    ] {
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "d", "namespace": "n"}});
        let spec = serde_json::from_value(json!({"workload": {"manifests": [object]}})).unwrap();
        let id = &with_rules(&spec).manifest_configs[0].resource_identifier;
        assert!(id.matches(group, resource, "n", "d"), "{kind}: {id:?}");
    }
}

#[test]
fn label_alone_does_not_make_a_work_the_sets_own() {
    let set = set(&template());
    let mut ours = observe(&set, Some(vec![group(0, &["c1"])]), &[]).apply.remove(0);
    let named = |name: &str| {
        let mut work = ours.clone();
        work.metadata.name = Some(name.into());
        work
    };
    for (name, own) in [
        ("web", false),
        ("webstore", false),
        ("somebody-elses", false),
        ("web-12345678", false),
        // As OCM's controller lets the server name them.
        ("webx7k2p", true),
        ("webx7k2pq", false),
    ] {
        assert_eq!(is_own(&set, &named(name)), own, "{name}");
    }
    let upstreams = named("webx7k2p");
    assert!(is_own(&set, &ours));
    // What OCM made stays until ours is there, and goes then.
    let chosen = || Some(vec![group(0, &["c1"])]);
    let first = observe(&set, chosen(), std::slice::from_ref(&upstreams));
    assert_eq!((first.apply.len(), first.delete.len()), (1, 0));
    let second = observe(&set, chosen(), &[upstreams.clone(), ours.clone()]);
    assert_eq!(second.delete, std::slice::from_ref(&upstreams));
    assert_eq!(
        observe(&set, Some(vec![group(0, &[])]), &[upstreams])
            .delete
            .len(),
        1
    );
    assert_eq!(foreign(&set, &ours), None);
    ours.metadata.labels = None;
    assert!(!is_own(&set, &ours));
    let why = foreign(&set, &ours).unwrap();
    let full = format!("c1/{}", ours.metadata.name.as_deref().unwrap());
    assert!(
        why.contains(&full) && why.contains("manifestworkreplicaset=team.web"),
        "{why}"
    );
}
