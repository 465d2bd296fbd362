//! Labels, names, acceptance and taints of clusters.

use super::*;

#[test]
fn moved_cluster_requires_join_of_sets_left_and_entered() {
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
        // The value names a set of another key, or no set, or nothing changes.
        (Some(&[]), Some(&[("vendor", "apac")]), &plain, vec![]),
        (Some(&[]), Some(&[("region", "nowhere")]), &plain, vec![]),
        (
            Some(&[("region", "apac")]),
            Some(&[("region", "apac"), ("x", "y")]),
            &plain,
            vec![],
        ),
        // The default key requires it for sets that do not exist, too, but not on delete, as in OCM.
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
        // Creation with labels of two keys.
        (
            None,
            Some(&[(KEY, "default"), ("region", "us")]),
            &plain,
            vec!["default", "us"],
        ),
        // Sets with a selector only with the option, and never the set of all clusters.
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
fn name_address_acceptance_and_taints_are_checked() {
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
            ..managed_cluster::Observed::default()
        };
        asked(managed_cluster::decide(&change, &observed, &Guards::default()))
    };
    // OCM allows an invalid name without an address.
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

/// The name of a cluster is the name of its namespace, and part of the name of a group: some belong to others.
#[test]
fn reserved_name_of_cluster_is_denied() {
    let user = user("bootstrap");
    for name in [
        "kube-system",
        "default",
        "open-cluster-management-hub",
        "open-cluster-management-agent-addon",
        "managed-clusters",
        "work",
        "registration",
        "ocm",
        "token",
    ] {
        let fresh = cluster(name, &[]);
        let mut accepted = fresh.clone();
        accepted.spec.hub_accepts_client = true;
        for (old, new) in [(None, Some(&fresh)), (Some(&fresh), Some(&accepted))] {
            let change = managed_cluster::Change {
                user: &user,
                old,
                new,
            };
            let refusal = asked(managed_cluster::decide(
                &change,
                &managed_cluster::Observed::default(),
                &Guards::default(),
            ));
            assert!(
                refusal.is_err_and(|r| r.contains("cannot be the name of a cluster")),
                "{name}"
            );
        }
        // An existing cluster of such a name can be cleaned up.
        let mut finalized = fresh.clone();
        finalized.metadata.finalizers = Some(vec!["example.com/x".into()]);
        let change = managed_cluster::Change {
            user: &user,
            old: Some(&finalized),
            new: Some(&fresh),
        };
        assert!(
            asked(managed_cluster::decide(
                &change,
                &managed_cluster::Observed::default(),
                &Guards::default()
            ))
            .is_ok()
        );
    }
}

#[test]
fn mutation_completes_set_label_taint_times_and_joined_sets() {
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

    // A label that stays stays confirmed, even if the set is not read; a removed label does not.
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
    // Two taints of one key: they differ, and an unrelated change leaves both as they are.
    before.spec.taints = vec![
        taint("a", json!("1970-01-01T00:00:01Z")),
        taint("b", json!("1970-01-01T00:00:02Z")),
    ];
    let mut accepted = before.clone();
    accepted.spec.hub_accepts_client = true;
    managed_cluster::mutate(Some(&before), &mut accepted, &[], &guards, now).unwrap();
    assert_eq!(accepted.spec.taints, before.spec.taints);
    accepted.spec.taints = vec![taint("b", Value::Null), taint("a", Value::Null)];
    managed_cluster::mutate(Some(&before), &mut accepted, &[], &guards, now).unwrap();
    assert!(before.spec.taints.iter().rev().eq(&accepted.spec.taints));
}

#[test]
fn accepting_a_cluster_with_a_foreign_namespace_warns() {
    let (user, old) = (user("dev1"), cluster("payments", &[]));
    let mut accepted = old.clone();
    accepted.spec.hub_accepts_client = true;
    for (new, of_others, warned) in [
        (&accepted, true, true),
        (&accepted, false, false),
        (&old, true, false),
    ] {
        let change = managed_cluster::Change {
            user: &user,
            old: Some(&old),
            new: Some(new),
        };
        let observed = managed_cluster::Observed {
            namespace_is_foreign: of_others,
            ..managed_cluster::Observed::default()
        };
        let decision = managed_cluster::decide(&change, &observed, &Guards::default());
        let Decision::Allow { warnings, .. } = decision else {
            panic!("refused");
        };
        assert_eq!(!warnings.is_empty(), warned);
    }
}
