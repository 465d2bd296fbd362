//! Which sets are allowed to which users, and the form in which they are stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;

#[test]
fn creation_requires_rights_on_the_key_and_on_gained_clusters() {
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
        // Sets with the default key require nothing.
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
fn invalid_set_is_denied() {
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
    for (selector, words) in [
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "0 values",
        ),
        (
            json!({"matchLabels": {"bad key!": "x"}}),
            "\"bad key!\" cannot be the key",
        ),
        (
            json!({"matchLabels": {"ok": "not a value!"}}),
            "\"not a value!\" on key \"ok\" cannot be the value",
        ),
        (
            json!({"matchExpressions": [{"key": "a/", "operator": "Exists"}]}),
            "\"a/\" cannot be the key",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["-b"]}]}),
            "\"-b\" on key \"a\"",
        ),
    ] {
        let broken = json!({"selectorType": "LabelSelector", "labelSelector": selector});
        let why = refused(json!({"clusterSelector": broken}), "a");
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn update_and_deletion_require_rights_on_clusters_that_move() {
    let guards = Guards::default();
    let user = user("sre1");
    let decide = |old: Option<&ManagedClusterSet>,
                  new: Option<&ManagedClusterSet>,
                  gained: usize,
                  lost: usize,
                  guards: &Guards| {
        let change = managed_cluster_set::Change {
            user: &user,
            old,
            new,
        };
        let observed = managed_cluster_set::Observed {
            keys: None,
            gained,
            lost,
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
    // If the hub removes the labels, the clusters move: that requires join, whatever the key.
    let mut removing = plain.clone();
    removing
        .annotations_mut()
        .insert("writ.dev/remove-labels-on-delete".into(), "true".into());
    assert_eq!(asked(decide(Some(&removing), None, 0, 2, &guards)), join);
    assert_eq!(decide(Some(&removing), None, 0, 0, &guards), Decision::ALLOW);
    // The hub acts on the finalizer, so it counts without the annotation, too.
    let mut begun = plain.clone();
    begun.finalizers_mut().push("writ.dev/remove-labels".into());
    assert_eq!(asked(decide(Some(&begun), None, 0, 2, &guards)), join);
    // The user who asks for it needs the right, even if another user deletes the set.
    for asking in [&removing, &begun] {
        assert_eq!(asked(decide(Some(&plain), Some(asking), 0, 0, &guards)), join);
        assert_eq!(asked(decide(None, Some(asking), 0, 0, &guards)), join);
        assert_eq!(decide(Some(asking), Some(&plain), 0, 0, &guards), Decision::ALLOW);
    }
    assert_eq!(
        decide(Some(&removing), Some(&begun), 0, 0, &guards),
        Decision::ALLOW
    );
    let Decision::Allow { warnings, .. } = decide(Some(&apac), None, 0, 2, &guards) else {
        panic!("refused");
    };
    assert!(warnings[0].contains("2 clusters keep the label region=apac"));

    // A selector that gains clusters requires update on all clusters.
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

/// A selector that becomes the default label is a new set with that key, and the other way round the end of one.
#[test]
fn selector_that_becomes_a_key_requires_the_rights_of_a_new_set() {
    let user = user("with update on the set");
    let plain = set("apac", json!({}));
    let selector = set(
        "apac",
        json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"a": "b"}}}}),
    );
    let guarded = Guards {
        default_key: true,
        ..Guards::default()
    };
    let decide = |old, new, keys: Option<&str>, gained, lost, guards: &Guards| {
        let change = managed_cluster_set::Change {
            user: &user,
            old: Some(old),
            new: Some(new),
        };
        let keys =
            keys.map(|keys| ExclusiveKeys::parse(&BTreeMap::from([("_pairs".to_owned(), keys.to_owned())])));
        let observed = managed_cluster_set::Observed { keys, gained, lost };
        asked(managed_cluster_set::decide(&change, &observed, guards))
    };
    let key = format!(
        "create managedclustersets/exclusiveKey {KEY} or create managedclustersets/exclusiveKey {KEY}:apac"
    );
    let (join, all) = ("create managedclustersets/join apac", "update managedclusters *");
    assert_eq!(
        decide(&selector, &plain, None, 0, 0, &guarded),
        Ok(vec![key.clone()])
    );
    assert_eq!(
        decide(&selector, &plain, None, 1, 1, &guarded),
        Ok(vec![key, all.to_owned()])
    );
    assert_eq!(
        decide(&plain, &selector, None, 0, 2, &guarded),
        Ok(vec![join.to_owned()])
    );
    let other = format!("{KEY}: us");
    let refusal = decide(&selector, &plain, Some(&other), 0, 0, &Guards::default()).unwrap_err();
    assert!(refusal.contains("is not in the ConfigMap"), "{refusal}");
    // Without the guard the rights that OCM requires are enough, as for deleting the set.
    let unguarded = Guards::default();
    assert_eq!(decide(&selector, &plain, None, 0, 0, &unguarded), Ok(vec![]));
    assert_eq!(decide(&plain, &selector, None, 0, 2, &unguarded), Ok(vec![]));
}

/// OCM's components read the selector, so the selector of a set with its own key cannot be another one.
#[test]
fn selector_beside_a_key_cannot_be_changed() {
    let mut old = set("apac", json!({"exclusiveKey": "region"}));
    managed_cluster_set::mutate(None, &mut old, true, &Guards::default()).unwrap();
    let mut new = old.clone();
    new.spec.cluster_selector.label_selector = Some(LabelSelector::default());
    managed_cluster_set::mutate(Some(&old), &mut new, false, &Guards::default()).unwrap();
    let user = user("with update on the set");
    let change = managed_cluster_set::Change {
        user: &user,
        old: Some(&old),
        new: Some(&new),
    };
    let observed = managed_cluster_set::Observed {
        keys: None,
        gained: 0,
        lost: 0,
    };
    let refusal = asked(managed_cluster_set::decide(
        &change,
        &observed,
        &Guards::default(),
    ))
    .unwrap_err();
    assert!(refusal.contains("select exactly region=apac"), "{refusal}");
}

#[test]
fn set_with_key_is_stored_with_its_selector() {
    let guards = Guards::default();
    let annotation = |set: &ManagedClusterSet| set.annotations().get("writ.dev/members-confirmed").cloned();
    let mut new = set("apac", json!({"exclusiveKey": "region"}));
    new.annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    managed_cluster_set::mutate(None, &mut new, false, &guards).unwrap();
    assert_eq!(
        new.spec.cluster_selector,
        crate::cluster_set::membership::selector_of("region", "apac")
    );
    assert_eq!(annotation(&new).as_deref(), Some("false"), "put back");

    let mut confirmed = new.clone();
    confirmed
        .annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    let mut refused = confirmed.clone();
    managed_cluster_set::mutate(Some(&new), &mut refused, false, &guards).unwrap();
    assert_eq!(annotation(&refused).as_deref(), Some("false"));
    managed_cluster_set::mutate(Some(&new), &mut confirmed, true, &guards).unwrap();
    assert_eq!(annotation(&confirmed).as_deref(), Some("true"));

    let mut legacy = set(
        "team",
        json!({"clusterSelector": {"selectorType": "LegacyClusterSetLabel"}}),
    );
    managed_cluster_set::mutate(None, &mut legacy, true, &guards).unwrap();
    assert_eq!(
        serde_json::to_value(&legacy.spec.cluster_selector).unwrap(),
        json!({"selectorType": "ExclusiveClusterSetLabel"})
    );
    assert_eq!(annotation(&legacy), None);

    // Once the default key is guarded, older sets stay as they are when changed, and new ones are annotated.
    let guarded = Guards {
        default_key: true,
        ..guards
    };
    let mut changed = legacy.clone();
    changed.labels_mut().insert("a".into(), "b".into());
    managed_cluster_set::mutate(Some(&legacy), &mut changed, false, &guarded).unwrap();
    assert_eq!(annotation(&changed), None);
    changed
        .annotations_mut()
        .insert("writ.dev/members-confirmed".into(), "true".into());
    managed_cluster_set::mutate(Some(&legacy), &mut changed, false, &guarded).unwrap();
    assert_eq!(annotation(&changed), None, "put back");
    let mut fresh = set("fresh", json!({}));
    managed_cluster_set::mutate(None, &mut fresh, false, &guarded).unwrap();
    assert_eq!(annotation(&fresh).as_deref(), Some("false"));

    // A selector cannot contain a name that the API server has not generated yet.
    let mut nameless = set("apac-", json!({"exclusiveKey": "region"}));
    nameless.metadata.generate_name = nameless.metadata.name.take();
    let why = managed_cluster_set::mutate(None, &mut nameless, true, &Guards::default()).unwrap_err();
    assert!(why.contains("needs a name of its own"), "{why}");
    nameless.spec.exclusive_key = None;
    managed_cluster_set::mutate(None, &mut nameless, true, &Guards::default()).unwrap();
}
