//! Tables: who asks for what, and what must be allowed for it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};

use super::{
    access::{Decision, Requester, cluster_identity},
    managed_cluster, managed_cluster_set,
    pairs::Pairs,
};
use crate::options::{Guards, KeyGrants};

fn user(name: &str) -> Requester {
    Requester {
        name: name.into(),
        groups: vec!["system:authenticated".into()],
    }
}

fn cluster(name: &str, labels: &[(&str, &str)]) -> ManagedCluster {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": false},
    }))
    .unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn set(name: &str, spec: Value) -> ManagedClusterSet {
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2",
        "kind": "ManagedClusterSet",
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": spec,
    }))
    .unwrap()
}

fn sets() -> Vec<ManagedClusterSet> {
    vec![
        set("apac", json!({"exclusiveKey": "region"})),
        set("us", json!({"exclusiveKey": "region"})),
        set("backup", json!({"exclusiveKey": "clusterAttribute"})),
        set(
            "prod",
            json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": "prod"}}}}),
        ),
        set(
            "global",
            json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}}),
        ),
    ]
}

/// The names of what is asked for, or the refusal.
fn asked(decision: Decision) -> Result<Vec<String>, String> {
    match decision {
        Decision::Refuse { message, .. } => Err(message),
        Decision::AllowIf { needs, .. } => Ok(needs
            .into_iter()
            .map(|need| {
                let options: Vec<_> = need
                    .any_of
                    .into_iter()
                    .map(|a| {
                        format!(
                            "{} {} {}",
                            a.verb,
                            a.resource,
                            a.name.unwrap_or_else(|| "*".into())
                        )
                    })
                    .collect();
                options.join(" or ")
            })
            .collect()),
    }
}

fn moved(
    old: Option<&[(&str, &str)]>,
    new: Option<&[(&str, &str)]>,
    guards: &Guards,
) -> Result<Vec<String>, String> {
    let (old, new) = (old.map(|l| cluster("mc1", l)), new.map(|l| cluster("mc1", l)));
    let user = user("dev1");
    let change = managed_cluster::Change {
        user: &user,
        old: old.as_ref(),
        new: new.as_ref(),
    };
    let observed = managed_cluster::Observed {
        sets: sets(),
        namespace_terminating: false,
    };
    asked(managed_cluster::decide(&change, &observed, guards))
}

const KEY: &str = "cluster.open-cluster-management.io/clusterset";
type Labels<'a> = Option<&'a [(&'a str, &'a str)]>;

#[test]
fn every_set_left_and_entered_is_asked_for() {
    let plain = Guards::default();
    let guarded = Guards {
        default_key: true,
        selector_sets: true,
        ..Guards::default()
    };
    let table: Vec<(Labels, Labels, &Guards, Vec<&str>)> = vec![
        (Some(&[]), Some(&[("region", "apac")]), &plain, vec!["apac"]),
        (Some(&[("region", "apac")]), Some(&[]), &plain, vec!["apac"]),
        (
            Some(&[("region", "apac")]),
            Some(&[("region", "us")]),
            &plain,
            vec!["apac", "us"],
        ),
        (
            Some(&[("region", "apac")]),
            Some(&[("region", "apac"), ("clusterAttribute", "backup")]),
            &plain,
            vec!["backup"],
        ),
        // The value names a set, but of another key; or no set at all; or nothing changes.
        (Some(&[]), Some(&[("vendor", "apac")]), &plain, vec![]),
        (Some(&[]), Some(&[("region", "nowhere")]), &plain, vec![]),
        (
            Some(&[("region", "apac")]),
            Some(&[("region", "apac"), ("x", "y")]),
            &plain,
            vec![],
        ),
        // The default key asks even for sets that are not there, as upstream, and not on delete.
        (None, Some(&[(KEY, "default")]), &plain, vec!["default"]),
        (
            Some(&[(KEY, "default")]),
            Some(&[(KEY, "nowhere")]),
            &plain,
            vec!["default", "nowhere"],
        ),
        (
            Some(&[(KEY, "default"), ("region", "apac")]),
            None,
            &plain,
            vec!["apac"],
        ),
        (
            Some(&[(KEY, "default"), ("region", "apac")]),
            None,
            &guarded,
            vec!["apac", "default"],
        ),
        // Create with labels of two keys.
        (
            None,
            Some(&[(KEY, "default"), ("region", "us")]),
            &plain,
            vec!["default", "us"],
        ),
        // Sets with a selector only on request, and never the one that holds all.
        (Some(&[]), Some(&[("env", "prod")]), &plain, vec![]),
        (Some(&[]), Some(&[("env", "prod")]), &guarded, vec!["prod"]),
        (Some(&[("env", "prod")]), None, &guarded, vec!["prod"]),
    ];
    for (old, new, guards, expected) in table {
        let expected: Vec<_> = expected
            .iter()
            .map(|set| format!("create managedclustersets/join {set}"))
            .collect();
        assert_eq!(moved(old, new, guards), Ok(expected), "{old:?} -> {new:?}");
    }
}

#[test]
fn names_addresses_acceptance_and_taints() {
    let decide = |old: Option<&ManagedCluster>, new: &ManagedCluster, terminating: bool| {
        let user = user("dev1");
        let change = managed_cluster::Change {
            user: &user,
            old,
            new: Some(new),
        };
        let observed = managed_cluster::Observed {
            sets: vec![],
            namespace_terminating: terminating,
        };
        asked(managed_cluster::decide(&change, &observed, &Guards::default()))
    };
    // Upstream lets a bad name pass when there is no address.
    assert!(decide(None, &cluster("Bad_Name", &[]), false).is_err());
    assert!(decide(None, &cluster("a.b", &[]), false).is_err());
    let mut plain = cluster("mc1", &[]);
    plain.spec.managed_cluster_client_configs =
        vec![serde_json::from_value(json!({"url": "http://x"})).unwrap()];
    assert!(decide(None, &plain, false).unwrap_err().contains("https"));

    let old = cluster("mc1", &[]);
    let mut accepted = old.clone();
    accepted.spec.hub_accepts_client = true;
    let accept = vec!["update managedclusters/accept mc1".to_owned()];
    assert_eq!(decide(Some(&old), &accepted, false), Ok(accept.clone()));
    assert_eq!(decide(None, &accepted, false), Ok(accept.clone()));
    assert!(decide(Some(&old), &accepted, true).is_err());
    assert_eq!(decide(Some(&accepted), &old, false), Ok(vec![]));
    let mut chosen = old.clone();
    chosen
        .annotations_mut()
        .insert("writ.dev/accept-csr".into(), "csr-1".into());
    assert_eq!(decide(Some(&old), &chosen, false), Ok(accept));

    let mut tainted = old.clone();
    tainted.spec.taints = vec![
        serde_json::from_value(
            json!({"key": "cluster.open-cluster-management.io/unreachable", "effect": "NoSelect"}),
        )
        .unwrap(),
    ];
    let hub_only = vec!["update managedclusters/systemtaints mc1".to_owned()];
    assert_eq!(decide(Some(&old), &tainted, false), Ok(hub_only.clone()));
    assert_eq!(decide(Some(&tainted), &old, false), Ok(hub_only));
}

#[test]
fn an_agent_changes_its_labels_annotations_and_addresses_only() {
    let agent = Requester {
        name: "system:open-cluster-management:mc1:agent".into(),
        groups: vec!["system:open-cluster-management:mc1".into()],
    };
    let decide = |old: &ManagedCluster, change: &dyn Fn(&mut ManagedCluster)| {
        let mut new = old.clone();
        change(&mut new);
        let change = managed_cluster::Change {
            user: &agent,
            old: Some(old),
            new: Some(&new),
        };
        let observed = managed_cluster::Observed {
            sets: sets(),
            namespace_terminating: false,
        };
        asked(managed_cluster::decide(&change, &observed, &Guards::default()))
    };
    let label = |key: &'static str, value: &'static str| {
        move |c: &mut ManagedCluster| {
            c.labels_mut().insert(key.into(), value.into());
        }
    };
    let mc1 = cluster("mc1", &[("region", "us")]);
    assert_eq!(
        decide(&mc1, &label("region", "apac")),
        Ok(vec![
            "create managedclustersets/join apac".into(),
            "create managedclustersets/join us".into()
        ])
    );
    assert!(
        decide(&mc1, &label("env", "prod"))
            .unwrap_err()
            .contains("the exclusive key of no set")
    );
    assert!(
        decide(&mc1, &label("region", "nowhere"))
            .unwrap_err()
            .contains("there is no such set")
    );
    assert_eq!(
        decide(&mc1, &|c| {
            c.annotations_mut()
                .insert("agent.open-cluster-management.io/x".into(), "y".into());
            c.spec.managed_cluster_client_configs =
                vec![serde_json::from_value(json!({"url": "https://x"})).unwrap()];
        }),
        Ok(vec![])
    );
    for change in [
        (|c: &mut ManagedCluster| {
            c.annotations_mut()
                .insert("addon.open-cluster-management.io/x".into(), "y".into());
        }) as fn(&mut ManagedCluster),
        |c| c.spec.hub_accepts_client = true,
        |c| c.spec.lease_duration_seconds = Some(10_000),
        |c| c.metadata.finalizers = Some(vec!["x/y".into()]),
    ] {
        assert!(decide(&mc1, &change).is_err());
    }
    // Another cluster is none of its business, however similar the name.
    let mc12 = cluster("mc12", &[]);
    assert!(
        decide(&mc12, &label("region", "apac"))
            .unwrap_err()
            .contains("may not change cluster")
    );
}

#[test]
fn who_is_an_agent() {
    for (name, group, expected) in [
        ("system:open-cluster-management:mc1:abc", "", Some("mc1")),
        ("system:open-cluster-management:mc1", "", None),
        (
            "system:open-cluster-management:cluster:mc1:addon:a:agent:x",
            "",
            None,
        ),
        (
            "system:serviceaccount:mc1:managed-cluster-agent",
            "system:serviceaccounts",
            Some("mc1"),
        ),
        (
            "system:serviceaccount:mc1:default",
            "system:serviceaccounts",
            None,
        ),
        ("whoever", "system:open-cluster-management:mc1", Some("mc1")),
        ("whoever", "open-cluster-management:mc1", Some("mc1")),
        ("whoever", "system:open-cluster-management:managed-clusters", None),
        ("alice", "team-a", None),
    ] {
        let user = Requester {
            name: name.into(),
            groups: vec![group.into()],
        };
        assert_eq!(cluster_identity(&user), expected, "{name} {group}");
    }
}

#[test]
fn mutation_of_a_cluster_fills_in_what_the_hub_keeps() {
    let now = Timestamp::from_second(1_000).unwrap();
    let guards = Guards::default();
    let mut new = cluster("mc1", &[("region", "apac")]);
    new.annotations_mut().insert(
        "writ.dev/joined-sets".into(),
        "region=forged,vendor=forged".into(),
    );
    managed_cluster::mutate(None, &mut new, &sets(), &guards, now).unwrap();
    assert_eq!(new.labels()[KEY], "default");
    assert_eq!(new.annotations()["writ.dev/joined-sets"], "region=uid-apac");

    // A label that stays keeps its stamp, also when the set is not read; a label that goes loses it.
    let old = new.clone();
    let mut same = old.clone();
    managed_cluster::mutate(Some(&old), &mut same, &[], &guards, now).unwrap();
    assert_eq!(same.annotations()["writ.dev/joined-sets"], "region=uid-apac");
    let mut left = old.clone();
    left.labels_mut().remove("region");
    managed_cluster::mutate(Some(&old), &mut left, &[], &guards, now).unwrap();
    assert!(!left.annotations().contains_key("writ.dev/joined-sets"));

    let taint = |value: &str, time: Value| {
        serde_json::from_value(json!({"key": "k", "value": value, "effect": "NoSelect", "timeAdded": time}))
            .unwrap()
    };
    let mut before = old.clone();
    before.spec.taints = vec![taint("a", json!("1970-01-01T00:00:01Z"))];
    for (taints, expected) in [
        (
            vec![taint("a", json!("1970-01-01T00:00:01Z"))],
            Some("1970-01-01T00:00:01Z"),
        ),
        (vec![taint("a", Value::Null)], Some("1970-01-01T00:00:01Z")),
        (vec![taint("b", Value::Null)], Some("1970-01-01T00:16:40Z")),
        (vec![taint("b", json!("1970-01-01T00:00:01Z"))], None),
        (vec![taint("a", json!("1970-01-01T00:00:02Z"))], None),
    ] {
        let mut after = before.clone();
        after.spec.taints = taints;
        let result = managed_cluster::mutate(Some(&before), &mut after, &[], &guards, now);
        let time = after.spec.taints[0].time_added.clone();
        assert_eq!(result.ok().and(time).as_deref(), expected);
    }
}

fn create(
    spec: Value,
    name: &str,
    gained: usize,
    pairs: Option<Result<Pairs, String>>,
    guards: &Guards,
) -> Result<Vec<String>, String> {
    let mut new = set(name, spec);
    managed_cluster_set::mutate(None, &mut new, false, guards);
    let user = user("sre1");
    let change = managed_cluster_set::Change {
        user: &user,
        old: None,
        new: Some(&new),
    };
    let observed = managed_cluster_set::Observed {
        pairs,
        gained,
        members: 0,
    };
    asked(managed_cluster_set::decide(&change, &observed, guards))
}

#[test]
fn who_creates_a_set() {
    let plain = Guards::default();
    let pair = Guards {
        key_grants: KeyGrants::Pair,
        ..Guards::default()
    };
    let guarded = Guards {
        default_key: true,
        ..Guards::default()
    };
    let region = json!({"exclusiveKey": "region"});
    let any =
        "create managedclustersets/exclusiveKey region or create managedclustersets/exclusiveKey region:apac";
    let update_all = "update managedclusters *";
    let selector = json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"a": "b"}}}});
    for (spec, gained, guards, expected) in [
        (&region, 0, &plain, vec![any]),
        (&region, 2, &plain, vec![any, update_all]),
        (
            &region,
            0,
            &pair,
            vec!["create managedclustersets/exclusiveKey region:apac"],
        ),
        // Nothing changes for those who do not use it.
        (&json!({}), 3, &plain, vec![]),
        (&json!({"exclusiveKey": ""}), 3, &plain, vec![]),
        (&json!({"exclusiveKey": KEY}), 3, &plain, vec![]),
        (
            &json!({}),
            3,
            &guarded,
            vec![
                "create managedclustersets/exclusiveKey cluster.open-cluster-management.io/clusterset or create managedclustersets/exclusiveKey cluster.open-cluster-management.io/clusterset:apac",
                update_all,
            ],
        ),
        (&selector, 0, &plain, vec![]),
        (&selector, 1, &plain, vec![update_all]),
    ] {
        let expected = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(
            create(spec.clone(), "apac", gained, None, guards),
            Ok(expected),
            "{spec}"
        );
    }
}

#[test]
fn what_no_set_may_be() {
    let refused = |spec: Value, name: &str| create(spec, name, 0, None, &Guards::default()).unwrap_err();
    let long = "a".repeat(64);
    assert!(refused(json!({}), &long).contains("63"));
    assert!(refused(json!({"exclusiveKey": "not a key"}), "a").contains("key of a label"));
    assert!(refused(json!({"exclusiveKey": "a/b/c"}), "a").contains("key of a label"));
    let other = json!({"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"region": "us"}}});
    assert!(
        refused(
            json!({"exclusiveKey": "region", "clusterSelector": other}),
            "apac"
        )
        .contains("select exactly region=apac")
    );
    assert!(
        refused(
            json!({"exclusiveKey": "region", "clusterLabel": {"key": "region", "value": "us"}}),
            "apac"
        )
        .contains("must be region=apac")
    );
    let broken = json!({"selectorType": "LabelSelector", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}});
    assert!(refused(json!({"clusterSelector": broken}), "a").contains("0 values"));
}

#[test]
fn the_permission_leak_and_its_two_cures() {
    // Somebody with grants on the keys region and vendor, and on the names apac and aws.
    let grants = ["region", "vendor"];
    let allowed = |guards: &Guards, grants: &[&str], pairs: Option<&Pairs>, key: &str, name: &str| {
        create(
            json!({"exclusiveKey": key}),
            name,
            0,
            pairs.cloned().map(Ok),
            guards,
        )
        .is_ok_and(|needs| {
            needs.iter().all(|need| {
                need.split(" or ").any(|access| {
                    grants
                        .iter()
                        .any(|g| access == format!("create managedclustersets/exclusiveKey {g}"))
                })
            })
        })
    };
    let any = Guards::default();
    let pair = Guards {
        key_grants: KeyGrants::Pair,
        ..Guards::default()
    };
    let map = BTreeMap::from([
        ("region".to_owned(), "apac, us".to_owned()),
        ("vendor".to_owned(), "aws, gcp".to_owned()),
    ]);
    let pairs = Pairs::parse(&map).unwrap();
    for (key, name, meant) in [
        ("region", "apac", true),
        ("vendor", "aws", true),
        ("vendor", "apac", false),
        ("region", "aws", false),
    ] {
        assert!(
            allowed(&any, &grants, None, key, name),
            "the leak: {key} {name} is allowed"
        );
        assert_eq!(
            allowed(&any, &grants, Some(&pairs), key, name),
            meant,
            "with the ConfigMap: {key} {name}"
        );
        assert_eq!(
            allowed(&pair, &["region:apac", "vendor:aws"], None, key, name),
            meant,
            "with pairs: {key} {name}"
        );
    }
    assert!(!allowed(&pair, &grants, None, "region", "apac"));
}

#[test]
fn the_config_map_of_pairs() {
    let parse = |entries: &[(&str, &str)]| {
        Pairs::parse(
            &entries
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        )
    };
    let pairs = parse(&[
        ("region", "apac, us"),
        ("_pairs", "example.com/tier: gold, silver\n\n"),
    ])
    .unwrap();
    for (key, name, allowed) in [
        (Some("region"), "apac", true),
        (Some("region"), "eu", false),
        (Some("vendor"), "apac", false),
        (Some("vendor"), "aws", true),
        (Some("example.com/tier"), "gold", true),
        (Some("example.com/tier"), "apac", false),
        (Some(KEY), "gold", false),
        (Some(KEY), "team-a", true),
        (None, "apac", false),
        (None, "other", true),
    ] {
        assert_eq!(pairs.allow(key, name), allowed, "{key:?} {name}");
    }
    for bad in [
        ("region", ""),
        ("region", "apac,,us"),
        ("region", "APAC"),
        ("_pairs", "no colon"),
    ] {
        assert!(parse(&[bad]).is_err(), "{bad:?}");
    }
    let refused = create(
        json!({}),
        "team-a",
        0,
        Some(Err("region: \"\"".into())),
        &Guards::default(),
    );
    assert!(refused.unwrap_err().contains("cannot be read"));
}

#[test]
fn updates_and_deletes_of_a_set() {
    let guards = Guards::default();
    let user = user("sre1");
    let decide = |old: Option<&ManagedClusterSet>,
                  new: Option<&ManagedClusterSet>,
                  gained: usize,
                  members: usize,
                  guards: &Guards| {
        let change = managed_cluster_set::Change {
            user: &user,
            old,
            new,
        };
        let observed = managed_cluster_set::Observed {
            pairs: None,
            gained,
            members,
        };
        managed_cluster_set::decide(&change, &observed, guards)
    };
    let apac = set("apac", json!({"exclusiveKey": "region"}));
    let mut labelled = apac.clone();
    labelled.labels_mut().insert("team".into(), "a".into());
    assert_eq!(
        decide(Some(&apac), Some(&labelled), 0, 5, &guards),
        Decision::ALLOW
    );
    let vendor = set("apac", json!({"exclusiveKey": "vendor"}));
    let plain = set("apac", json!({}));
    for (old, new) in [(&apac, &vendor), (&plain, &apac), (&apac, &plain)] {
        let refused = asked(decide(Some(old), Some(new), 0, 0, &guards)).unwrap_err();
        assert!(refused.contains("cannot be changed"));
    }
    let join = Ok(vec!["create managedclustersets/join apac".to_owned()]);
    assert_eq!(asked(decide(Some(&apac), None, 0, 2, &guards)), join);
    assert_eq!(decide(Some(&apac), None, 0, 0, &guards), Decision::ALLOW);
    assert_eq!(asked(decide(Some(&plain), None, 0, 2, &guards)), Ok(vec![]));
    let guarded = Guards {
        default_key: true,
        ..Guards::default()
    };
    assert_eq!(asked(decide(Some(&plain), None, 0, 2, &guarded)), join);
    let Decision::AllowIf { warnings, .. } = decide(Some(&apac), None, 0, 2, &guards) else {
        panic!("refused");
    };
    assert!(warnings[0].contains("2 clusters keep the label region=apac"));

    // Widening a selector takes update on all clusters.
    let selector = |value: &str| {
        set(
            "prod",
            json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": value}}}}),
        )
    };
    let (old, new) = (selector("prod"), selector("dev"));
    let all = Ok(vec!["update managedclusters *".to_owned()]);
    assert_eq!(asked(decide(Some(&old), Some(&new), 1, 0, &guards)), all);
    assert_eq!(asked(decide(Some(&old), Some(&new), 0, 0, &guards)), Ok(vec![]));
}

#[test]
fn the_stored_form_of_a_set() {
    let guards = Guards::default();
    let annotation = |set: &ManagedClusterSet| set.annotations().get("writ.dev/members-confirmed").cloned();
    let mut new = set("apac", json!({"exclusiveKey": "region"}));
    new.annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    managed_cluster_set::mutate(None, &mut new, false, &guards);
    assert_eq!(
        new.spec.cluster_selector,
        managed_cluster_set::selector_of("region", "apac")
    );
    assert_eq!(annotation(&new).as_deref(), Some("false"), "put back");

    let mut confirmed = new.clone();
    confirmed
        .annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    let mut refused = confirmed.clone();
    managed_cluster_set::mutate(Some(&new), &mut refused, false, &guards);
    assert_eq!(annotation(&refused).as_deref(), Some("false"));
    managed_cluster_set::mutate(Some(&new), &mut confirmed, true, &guards);
    assert_eq!(annotation(&confirmed).as_deref(), Some("true"));

    let mut legacy = set(
        "team",
        json!({"clusterSelector": {"selectorType": "LegacyClusterSetLabel"}}),
    );
    managed_cluster_set::mutate(None, &mut legacy, true, &guards);
    assert_eq!(
        serde_json::to_value(&legacy.spec.cluster_selector).unwrap(),
        json!({"selectorType": "ExclusiveClusterSetLabel"})
    );
    assert_eq!(annotation(&legacy), None);
}

/// A label and its set are made at the same moment; each admission looks before the other one's object is stored.
#[test]
fn a_race_never_ends_in_a_silent_member() {
    use crate::cluster_set::membership::{JOINED_ANNOTATION, Membership, SetView};
    let guards = Guards::default();
    let now = Timestamp::UNIX_EPOCH;
    let user = user("sre1");
    // The label: there is no such set yet, so nothing is asked.
    let old = cluster("mc1", &[(KEY, "default")]);
    let mut new = cluster("mc1", &[(KEY, "default"), ("region", "apac")]);
    managed_cluster::mutate(Some(&old), &mut new, &[], &guards, now).unwrap();
    let change = managed_cluster::Change {
        user: &user,
        old: Some(&old),
        new: Some(&new),
    };
    let observed = managed_cluster::Observed::default();
    assert_eq!(
        asked(managed_cluster::decide(&change, &observed, &guards)),
        Ok(vec![])
    );
    // The set: no cluster carries the label yet, so `update` on all clusters is not asked.
    let mut made = set("apac", json!({"exclusiveKey": "region"}));
    managed_cluster_set::mutate(None, &mut made, false, &guards);
    let needs = create(json!({"exclusiveKey": "region"}), "apac", 0, None, &guards).unwrap();
    assert_eq!(needs.len(), 1);
    // Both are stored: the cluster is reported, not a member.
    let joined = |cluster: &ManagedCluster| cluster.annotations().get(JOINED_ANNOTATION).cloned();
    let view = SetView::of(&made, false);
    assert_eq!(
        view.membership(new.labels(), joined(&new).as_deref()),
        Membership::Unconfirmed
    );
    // Somebody who may update all clusters confirms.
    let mut confirmed = made.clone();
    confirmed
        .annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    managed_cluster_set::mutate(Some(&made), &mut confirmed, true, &guards);
    let view = SetView::of(&confirmed, false);
    assert_eq!(
        view.membership(new.labels(), joined(&new).as_deref()),
        Membership::Member
    );
    // In the other order the label's admission sees the set, asks for join, and stamps the cluster.
    let mut later = cluster("mc2", &[(KEY, "default"), ("region", "apac")]);
    managed_cluster::mutate(Some(&old), &mut later, std::slice::from_ref(&made), &guards, now).unwrap();
    assert_eq!(
        SetView::of(&made, false).membership(later.labels(), joined(&later).as_deref()),
        Membership::Member
    );
}
