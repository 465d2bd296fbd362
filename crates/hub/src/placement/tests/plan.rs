use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, placement::PlacementSpec};

use crate::placement::{
    cluster_view::{AddOnScores, ClusterView},
    model::{DecisionObject, Location, NoCandidates, Outcome, Surroundings, Verdict},
    plan::{Compiled, decision_name, prioritizers, slot_of, taints},
};

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn cluster(name: &str, more: Value) -> ClusterView {
    let mut object = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": name}, "spec": {"hubAcceptsClient": true},
    });
    json_patch::merge(&mut object, &more);
    let cluster: ManagedCluster = serde_json::from_value(object).unwrap();
    ClusterView::of(Arc::new(cluster))
}

fn labelled(name: &str, key: &str, value: &str) -> ClusterView {
    cluster(name, json!({"metadata": {"labels": {key: value}}}))
}

fn spec(value: Value) -> PlacementSpec {
    serde_json::from_value(value).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000).unwrap()
}

fn schedule_after(wanted: Value, clusters: &[ClusterView], before: &BTreeMap<String, Location>) -> Outcome {
    let compiled = Compiled::of(&spec(wanted)).unwrap();
    let verdicts: Vec<Verdict> = clusters
        .iter()
        .map(|c| compiled.judge(c, before.contains_key(&c.name), now(), |_| AddOnScores::default()))
        .collect();
    let candidates: Vec<_> = clusters.iter().zip(&verdicts).collect();
    compiled.schedule(
        &candidates,
        &Surroundings {
            before,
            chosen_elsewhere: &|_| 0,
            add_on_score: &|cluster, _, _| (cluster == "c2").then_some(90),
        },
    )
}

fn schedule(wanted: Value, clusters: &[ClusterView]) -> Outcome {
    schedule_after(wanted, clusters, &BTreeMap::new())
}

/// Where the clusters are written once this is stored.
fn locations(outcome: &Outcome) -> BTreeMap<String, Location> {
    let home = |object: &DecisionObject| Location {
        slot: object.slot,
        group: object.group,
        group_name: object.group_name.clone(),
    };
    let objects = outcome.objects.iter();
    objects
        .flat_map(|o| o.clusters.iter().map(move |c| (c.clone(), home(o))))
        .collect()
}

fn chosen(outcome: &Outcome) -> Vec<&str> {
    let mut names: Vec<&str> = outcome
        .objects
        .iter()
        .flat_map(|o| &o.clusters)
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn cluster_matches_all_parts_of_one_predicate() {
    let clusters = [
        cluster(
            "a",
            json!({"metadata": {"labels": {"env": "prod"}}, "status": {"clusterClaims": [{"name": "region", "value": "eu"}]}}),
        ),
        labelled("b", "env", "prod"),
        labelled("c", "env", "dev"),
    ];
    let prod = json!({"labelSelector": {"matchLabels": {"env": "prod"}}});
    let eu = json!({"labelSelector": {"matchLabels": {"env": "prod"}},
        "claimSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}});
    let cel = json!({"celSelector": {"celExpressions": ["managedCluster.metadata.labels.env == 'dev'"]}});
    for (selectors, expected) in [
        (vec![&prod], vec!["a", "b"]),
        (vec![&eu], vec!["a"]),
        (vec![&cel], vec!["c"]),
        (vec![&eu, &cel], vec!["a", "c"]),
        (vec![], vec!["a", "b", "c"]),
    ] {
        let predicates: Vec<_> = selectors
            .iter()
            .map(|s| json!({"requiredClusterSelector": s}))
            .collect();
        let outcome = schedule(json!({"predicates": predicates}), &clusters);
        assert_eq!(chosen(&outcome), expected, "{selectors:?}");
        assert_eq!(outcome.left_out.len(), 3 - expected.len());
    }
}

#[test]
fn invalid_field_is_named() {
    let cel = |text: &str| json!({"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": [text]}}}]});
    // What some clusters lack is no mistake.
    for text in [
        "managedCluster.metadata.labels['env'] == 'dev' && managedCluster.metadata.annotations.a == 'b'",
        "managedCluster.status.version.kubernetes.startsWith('v1.36')",
        "managedCluster.status.conditions.exists(c, c.type == 'X' && c.status == 'True' && c.reason != '')",
        "managedCluster.status.clusterClaims.filter(c, c.name == 'a').all(c, c.value == 'b')",
        "managedCluster.spec.taints.all(t, t.key != 'a' && t.effect == 'NoSelect' && has(t.value))",
        "quantity(managedCluster.status.allocatable['cpu']).isGreaterThan(quantity('4'))",
        "managedCluster.spec.managedClusterClientConfigs[0].url != '' && managedCluster.spec.hubAcceptsClient",
        "managedCluster.scores('usage').exists(s, s.name == 'free' && s.value > 50)",
        "managedCluster.metadata.annotations['note'].parseJSON().gpu > 2",
    ] {
        assert_eq!(Compiled::of(&spec(cel(text))).err(), None, "{text}");
    }
    for (wanted, words) in [
        (cel("1 +"), "spec.predicates[0]"),
        (
            cel("cluster.metadata.name == 'a'"),
            "there is no variable \"cluster\"",
        ),
        (
            cel("managedCluster.score('a').size() > 0"),
            "there is no function \"score\"",
        ),
        (cel("1 + 1"), "never true or false"),
        (cel("managedCluster.metadata.name"), "never true or false"),
        (
            cel("managedCluster.metadata.labls['a'] == 'b'"),
            "there is no field \"labls\"",
        ),
        (
            cel("managedCluster.status.clusterClaims.exists(c, c.key == 'a')"),
            "there is no field \"key\"",
        ),
        (
            json!({"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}]}),
            "Near",
        ),
        (
            json!({"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"bad key!": "x"}}}}]}),
            "spec.predicates[0].requiredClusterSelector.labelSelector: \"bad key!\" cannot be the key",
        ),
        (
            json!({"predicates": [{"requiredClusterSelector": {"claimSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["no value!"]}]}}}]}),
            "spec.predicates[0].requiredClusterSelector.claimSelector: \"no value!\"",
        ),
        (
            json!({"tolerations": [{"operator": "Equal"}]}),
            "spec.tolerations[0]",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
            "value must be empty",
        ),
        (json!({"prioritizerPolicy": {"mode": "Odd"}}), "Odd"),
        (
            json!({"prioritizerPolicy": {"configurations": [{"scoreCoordinate": {"builtIn": "Luck"}}]}}),
            "Luck",
        ),
        (json!({"numberOfClusters": -1}), "numberOfClusters"),
    ] {
        let Err(message) = Compiled::of(&spec(wanted.clone())) else {
            panic!("{wanted} is understood");
        };
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn taint_excludes_cluster_while_it_is_not_tolerated() {
    let tainted = |effect: &str| {
        cluster(
            "a",
            json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect, "timeAdded": "1970-01-01T00:15:00Z"}]}}),
        )
    };
    let judge = |effect: &str, tolerations: Value, had: bool| {
        taints::judge(
            &tainted(effect),
            &spec(json!({"tolerations": tolerations})).tolerations,
            had,
            now(),
        )
    };
    for (effect, tolerations, had, out) in [
        ("NoSelect", json!([]), true, true),
        ("NoSelect", json!([{"key": "k", "value": "v"}]), false, false),
        ("NoSelect", json!([{"key": "k", "value": "w"}]), false, true),
        (
            "NoSelect",
            json!([{"key": "k", "operator": "Exists"}]),
            false,
            false,
        ),
        ("NoSelect", json!([{"operator": "Exists"}]), false, false),
        (
            "NoSelect",
            json!([{"operator": "Exists", "effect": "PreferNoSelect"}]),
            false,
            true,
        ),
        ("NoSelectIfNew", json!([]), true, false),
        ("NoSelectIfNew", json!([]), false, true),
        ("PreferNoSelect", json!([]), false, false),
    ] {
        let verdict = judge(effect, tolerations.clone(), had);
        assert_eq!(verdict.refusal.is_some(), out, "{effect} {tolerations} {had}");
    }
    // Added at second 900, now is 1000.
    let seconds = |s: i64| json!([{"key": "k", "operator": "Exists", "tolerationSeconds": s}]);
    let verdict = judge("NoSelect", seconds(150), false);
    assert_eq!(verdict.until.map(|d| d.as_secs()), Some(50));
    assert!(judge("NoSelect", seconds(100), false).refusal.is_some());
    // PreferNoSelect: only when no other is left.
    let others = [tainted("PreferNoSelect"), cluster("b", json!({}))];
    assert_eq!(chosen(&schedule(json!({"numberOfClusters": 1}), &others)), ["b"]);
    assert_eq!(
        chosen(&schedule(json!({"numberOfClusters": 2}), &others)),
        ["a", "b"]
    );
}

#[test]
fn cluster_with_best_score_is_chosen_and_stays() {
    let sized = |name: &str, cpu: &str| {
        cluster(
            name,
            json!({"status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}}),
        )
    };
    let clusters = [sized("c1", "4"), sized("c2", "8"), sized("c3", "16")];
    let by = |coordinate: Value, weight: i64| {
        json!({"numberOfClusters": 1, "prioritizerPolicy": {"mode": "Exact",
            "configurations": [{"scoreCoordinate": coordinate, "weight": weight}]}})
    };
    let cpu = json!({"type": "BuiltIn", "builtIn": "ResourceAllocatableCPU"});
    assert_eq!(chosen(&schedule(by(cpu.clone(), 1), &clusters)), ["c3"]);
    assert_eq!(chosen(&schedule(by(cpu, -1), &clusters)), ["c1"]);
    let add_on = json!({"type": "AddOn", "addOn": {"resourceName": "r", "scoreName": "s"}});
    assert_eq!(chosen(&schedule(by(add_on, 1), &clusters)), ["c2"]);
    // A cluster that comes before others by name does not push them out.
    let before = BTreeMap::from([("c2".to_owned(), Location::default())]);
    let outcome = schedule_after(json!({"numberOfClusters": 1}), &clusters, &before);
    assert_eq!(chosen(&outcome), ["c2"]);
    assert!(outcome.left_out["c1"].contains("others come first"));
    assert_eq!(
        prioritizers::normalize(&[Some(0), Some(5), Some(10), None]),
        [-100, 0, 100, -100]
    );
    assert_eq!(prioritizers::normalize(&[Some(3), Some(3)]), [100, 100]);
    assert_eq!(prioritizers::balance(&[0, 1, 2]), [100, 0, -100]);
}

#[test]
fn cluster_that_is_not_accepted_is_not_chosen() {
    let clusters = [
        cluster("in", json!({})),
        cluster("out", json!({"spec": {"hubAcceptsClient": false}})),
    ];
    let outcome = schedule(json!({"tolerations": [{"operator": "Exists"}]}), &clusters);
    assert_eq!(chosen(&outcome), ["in"]);
    assert_eq!(outcome.left_out["out"], "it is not accepted");
}

#[test]
fn spread_constraint_keeps_regions_even() {
    let clusters: Vec<ClusterView> = [
        ("a1", "apac"),
        ("a2", "apac"),
        ("a3", "apac"),
        ("e1", "eu"),
        ("u1", "us"),
    ]
    .iter()
    .map(|(name, region)| labelled(name, "region", region))
    .collect();
    let wanted = |number: i64, action: &str| {
        json!({"numberOfClusters": number, "spreadPolicy": {"spreadConstraints": [
            {"topologyKey": "region", "topologyKeyType": "Label", "maxSkew": 1, "whenUnsatisfiable": action}]}})
    };
    assert_eq!(
        chosen(&schedule(wanted(3, "ScheduleAnyway"), &clusters)),
        ["a1", "e1", "u1"]
    );
    assert_eq!(chosen(&schedule(wanted(5, "ScheduleAnyway"), &clusters)).len(), 5);
    let strict = schedule(wanted(5, "DoNotSchedule"), &clusters);
    assert_eq!(chosen(&strict), ["a1", "a2", "e1", "u1"]);
    assert_eq!(strict.left_out["a3"], "a spread constraint keeps it out");
}

#[test]
fn groups_have_their_size_and_objects_hold_a_hundred() {
    let clusters: Vec<ClusterView> = (0..250)
        .map(|n| labelled(&format!("c{n:03}"), "canary", if n < 10 { "yes" } else { "no" }))
        .collect();
    let outcome = schedule(json!({}), &clusters);
    let sizes: Vec<usize> = outcome.objects.iter().map(|o| o.clusters.len()).collect();
    assert_eq!(sizes, [100, 100, 50]);
    let groups = json!({"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "50%", "decisionGroups": [
        {"groupName": "canary", "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "yes"}}}}]}}});
    let outcome = schedule(groups, &clusters);
    let shape: Vec<(usize, &str, usize)> = outcome
        .objects
        .iter()
        .map(|o| (o.group, o.group_name.as_str(), o.clusters.len()))
        .collect();
    assert_eq!(
        shape,
        [
            (0, "canary", 10),
            (1, "", 100),
            (1, "", 25),
            (2, "", 100),
            (2, "", 15)
        ]
    );
    let slots: Vec<usize> = outcome.objects.iter().map(|o| o.slot).collect();
    assert_eq!(
        slots.len(),
        slots.iter().collect::<std::collections::BTreeSet<_>>().len()
    );
}

#[test]
fn cluster_stays_in_its_object() {
    let mut clusters: Vec<ClusterView> = (0..150)
        .map(|n| cluster(&format!("c{n:03}"), json!({})))
        .collect();
    let first = schedule(json!({}), &clusters);
    let before = locations(&first);
    // One that sorts first comes, one in the middle goes.
    clusters.push(cluster("a000", json!({})));
    clusters.retain(|c| c.name != "c120");
    clusters.sort_by(|a, b| a.name.cmp(&b.name));
    let second = schedule_after(json!({}), &clusters, &before);
    for object in &second.objects {
        for name in object.clusters.iter().filter(|n| *n != "a000") {
            assert_eq!(before[name].slot, object.slot, "{name}");
        }
    }
    assert_eq!(second.selected, 150);
    assert_eq!(decision_name("p", 0), "p-decision-1");
    assert_eq!(slot_of("p", "p-decision-1"), Some(0));
    assert_eq!(slot_of("p", "p-decision-x"), None);
    assert_eq!(slot_of("p", "p-2-decision-1"), None);
}

/// The groups of an outcome, in order.
fn groups(outcome: &Outcome) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&str>> = Vec::new();
    for object in &outcome.objects {
        groups.resize(groups.len().max(object.group + 1), Vec::new());
        groups[object.group].extend(object.clusters.iter().map(String::as_str));
    }
    groups
}

/// A cluster that comes or goes moves no other to another group, unless a whole group is not needed any more.
#[test]
fn cluster_stays_in_its_group() {
    let fleet =
        |names: &[&str]| -> Vec<ClusterView> { names.iter().map(|n| cluster(n, json!({}))).collect() };
    let by = |size: Value| json!({"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": size}}});
    let names = ["b", "c", "d", "e", "f"];
    let first = schedule(by(json!(2)), &fleet(&names));
    assert_eq!(groups(&first), [vec!["b", "c"], vec!["d", "e"], vec!["f"]]);
    // One that sorts before all others fills the hole, and the next opens a group.
    let second = schedule_after(
        by(json!(2)),
        &fleet(&["a", "b", "c", "d", "e", "f"]),
        &locations(&first),
    );
    assert_eq!(groups(&second), [vec!["b", "c"], vec!["d", "e"], vec!["a", "f"]]);
    let third = schedule_after(
        by(json!(2)),
        &fleet(&["0", "a", "b", "c", "d", "e", "f"]),
        &locations(&second),
    );
    assert_eq!(groups(&third)[3], ["0"]);
    assert_eq!(groups(&third)[..3], groups(&second));
    // One goes, and the group that is one too many goes with it.
    let fourth = schedule_after(
        by(json!(2)),
        &fleet(&["0", "a", "b", "d", "e", "f"]),
        &locations(&third),
    );
    assert_eq!(groups(&fourth), [vec!["0", "b"], vec!["d", "e"], vec!["a", "f"]]);
    // A percentage demands what it demands, and no more.
    let half = schedule(by(json!("50%")), &fleet(&names[..4]));
    assert_eq!(groups(&half), [["b", "c"], ["d", "e"]]);
    let more = schedule_after(
        by(json!("50%")),
        &fleet(&["a", "b", "c", "d", "e"]),
        &locations(&half),
    );
    assert_eq!(groups(&more), [vec!["a", "b", "c"], vec!["d", "e"]]);
    // Groups of several objects, and a cluster that moves from one to the other by its label: nobody else moves.
    let many = |canary: usize| -> Vec<ClusterView> {
        let value = |n| if n < canary { "yes" } else { "no" };
        (0..300)
            .map(|n| labelled(&format!("c{n:03}"), "canary", value(n)))
            .collect()
    };
    let grouped = json!({"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": 150, "decisionGroups": [
        {"groupName": "canary", "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "yes"}}}}]}}});
    let before = locations(&schedule(grouped.clone(), &many(20)));
    let after = locations(&schedule_after(grouped, &many(21), &before));
    let moved: Vec<&String> = after
        .keys()
        .filter(|name| after[*name] != before[*name])
        .collect();
    assert_eq!(moved, ["c020"]);
}

#[test]
fn conditions_have_the_reasons_of_ocm() {
    let state = |wanted: Value, clusters: &[ClusterView], none: Option<&NoCandidates>| {
        let compiled = Compiled::of(&spec(wanted.clone())).unwrap();
        let outcome = schedule(wanted, clusters);
        let mut conditions = compiled.conditions(outcome.selected, outcome.feasible, none);
        conditions.swap_remove(0)
    };
    let reason = |wanted, clusters: &[ClusterView], none| state(wanted, clusters, none).reason;
    let one = [cluster("a", json!({}))];
    let mut nobody =
        json!({"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"x": "y"}}}}]});
    assert_eq!(reason(json!({}), &one, None), "AllDecisionsScheduled");
    assert_eq!(
        reason(json!({"numberOfClusters": 2}), &one, None),
        "NotAllDecisionsScheduled"
    );
    assert_eq!(
        reason(json!({"numberOfClusters": 0}), &one, None),
        "AllDecisionsScheduled"
    );
    assert_eq!(reason(nobody.clone(), &one, None), "NoManagedClusterMatched");
    nobody["numberOfClusters"] = json!(2);
    assert_eq!(reason(nobody, &one, None), "NoManagedClusterMatched");
    let sets = || vec!["a".to_owned(), "b".to_owned()];
    for (none, expected, message) in [
        (
            NoCandidates::NoBindings,
            "NoManagedClusterSetBindings",
            "No valid ManagedClusterSetBindings found in placement namespace",
        ),
        (
            NoCandidates::NoIntersection(sets()),
            "NoIntersection",
            "None of ManagedClusterSets [a,b] is bound to placement namespace",
        ),
        (
            NoCandidates::Empty(sets()),
            "AllManagedClusterSetsEmpty",
            "All ManagedClusterSets [a,b] have no member ManagedCluster",
        ),
    ] {
        let said = state(json!({}), &[], Some(&none));
        assert_eq!((said.reason.as_str(), said.message.as_str()), (expected, message));
    }
}
